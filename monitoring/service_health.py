"""The dashboard of the service: are callers served, and if not, what is in the way."""

from monitoring.panels import Board, Kind, Panel, Query, Unit, quantiles

SERVICE_HEALTH = Board(
    "daband-service",
    "daband: service health",
    (
        Panel(
            "Targets up",
            Unit.COUNT,
            (Query('sum by (job) (up{job=~"api|trainer"})', "{{job}}"),),
            kind=Kind.NOW,
        ),
        Panel(
            "Processes",
            Unit.COUNT,
            (Query("sum by (job) (daband_processes)", "{{job}}"),),
            kind=Kind.NOW,
        ),
        Panel(
            "Requests",
            Unit.PER_SECOND,
            (Query("sum(route:daband_requests:rate5m)", "all"),),
            kind=Kind.NOW,
        ),
        Panel(
            "Share of 5xx",
            Unit.SHARE,
            (Query("daband:request_errors:ratio5m", "5xx"),),
            kind=Kind.NOW,
            limit=0.01,
        ),
        Panel(
            "Requests by route",
            Unit.PER_SECOND,
            (Query("route:daband_requests:rate5m", "{{route}}"),),
        ),
        Panel(
            "Requests by class of status",
            Unit.PER_SECOND,
            (
                Query(
                    "sum by (status) (rate(daband_request_seconds_count[$__rate_interval]))",
                    "{{status}}",
                ),
            ),
            "`gone`: the caller left before the answer.",
            Kind.STACKED,
        ),
        Panel(
            "Time to answer",
            Unit.SECONDS,
            (
                Query("route:daband_request_seconds:p50_5m", "{{route}} p50"),
                Query("route:daband_request_seconds:p99_5m", "{{route}} p99"),
            ),
            "Quantiles are interpolated inside buckets.",
        ),
        Panel(
            "Requests in flight",
            Unit.COUNT,
            (Query("sum(daband_requests_in_flight)", "in flight"),),
            "Beyond DABAND_MAX_IN_FLIGHT, and under load earlier, a process refuses more.",
        ),
        Panel(
            "Problems answered",
            Unit.PER_SECOND,
            (
                Query(
                    "topk(5, sum by (slug) (rate(daband_problems_total[$__rate_interval])))",
                    "{{slug}}",
                ),
            ),
            "The most frequent; docs/api.md explains each.",
        ),
        Panel(
            "Append to the event log",
            Unit.SECONDS,
            (
                *quantiles("daband_append_seconds"),
                Query("daband:append_seconds:p99_5m", "p99 of 5 minutes"),
            ),
            "One transaction of the group commit.",
        ),
        Panel(
            "Events in a transaction",
            Unit.COUNT,
            quantiles("daband_append_events"),
            "What group commit gains.",
        ),
        Panel(
            "Waiting",
            Unit.COUNT,
            (
                *quantiles("daband_scorer_queue_depth", "contexts to be scored"),
                *quantiles("daband_append_queue_depth", "events to be written"),
            ),
            "As a pass or a transaction begins; DABAND_MAX_WAITING bounds both.",
        ),
        Panel("Contexts scored in a pass", Unit.COUNT, quantiles("daband_scorer_batch_size")),
        Panel(
            "Failures of the database",
            Unit.PER_SECOND,
            (
                Query(
                    "sum by (kind) (rate(daband_storage_errors_total[$__rate_interval]))",
                    "{{kind}}",
                ),
                Query(
                    "sum(rate(daband_decisions_lost_total[$__rate_interval]))",
                    "relaxed decisions lost",
                ),
            ),
            "`retried` are conflicts that a second try solved.",
        ),
        Panel(
            "Answered and not yet durable",
            Unit.COUNT,
            (Query("sum(daband_unwritten_decisions)", "relaxed decisions"),),
            "What a crash would lose; DABAND_RELAXED_BOUND bounds it in each process.",
        ),
        Panel(
            "Failures of the bus",
            Unit.PER_SECOND,
            (
                Query(
                    "sum by (operation) (rate(daband_bus_failures_total[$__rate_interval]))",
                    "{{operation}}",
                ),
                Query(
                    "sum by (reason) (rate(daband_bus_refused_total[$__rate_interval]))",
                    "refused: {{reason}}",
                ),
            ),
            "Redis; nothing is lost. What is refused was not written by the service, or by another build (format).",
        ),
        Panel(
            "Deaths and replacements",
            Unit.COUNT,
            (
                Query("sum by (job) (increase(daband_process_starts_total[1h]))", "starts {{job}}"),
                Query("sum by (task) (increase(daband_task_deaths_total[1h]))", "died: {{task}}"),
                Query("sum(increase(daband_training_process_deaths_total[1h]))", "died: training"),
                Query("sum(increase(daband_devices_lost_total[1h]))", "GPUs lost"),
            ),
            "Over an hour.",
        ),
    ),
)
