"""Metrics of serving: requests, decisions, rewards, queues and errors."""

from collections.abc import Iterable

from prometheus_client import Histogram

from model import Domain
from service.metrics.registered import Registered

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
STORAGE_ERRORS = ("timeout", "refused", "retried")
BUS_OPERATIONS = ("publish", "latest", "wake", "subscribe")


class EventMetrics(Registered):
    """Metrics of decisions, rewards and their way into the log."""

    def __init__(self) -> None:
        super().__init__()
        self._begun: set[str] = set()
        self._make_queue_metrics()
        self._make_event_metrics()
        self._make_error_metrics()

    def _make_queue_metrics(self) -> None:
        # Depths are histograms: a scrape runs between two event-loop ticks, when queues are nearly
        # always empty.
        self.scorer_queue = self._histogram(
            "daband_scorer_queue_depth", "Contexts that wait when scoring begins", SIZES
        )
        self.scorer_batch = self._histogram(
            "daband_scorer_batch_size", "Contexts that are scored in one pass", SIZES
        )
        self.append_queue = self._histogram(
            "daband_append_queue_depth", "Events that wait when a transaction begins", SIZES
        )
        self.append_events = self._histogram(
            "daband_append_events", "Events in a transaction that appends to the event log", SIZES
        )
        self.append_seconds = self._histogram(
            "daband_append_seconds", "Time of a transaction that appends to the event log", SECONDS
        )

    def _make_event_metrics(self) -> None:
        self.decisions = self._counter(
            "daband_decisions_total", "New decisions", "experiment", "domain"
        )
        self.lost_decisions = self._counter(
            "daband_decisions_lost_total",
            "Decisions of relaxed experiments that were answered but could not be written",
            "experiment",
        )
        self.unwritten_decisions = self._gauge(
            "daband_unwritten_decisions",
            "Decisions of relaxed experiments that are answered but not durable yet, as of the last batch",
            "livesum",
        )
        self.entropy = self._counter(
            "daband_selection_entropy_nats_total",
            "Sum of the entropies of served probabilities; divided by the decisions it is their mean",
            *("experiment", "domain"),
        )
        self.rewards = self._counter("daband_rewards_total", "New rewards", "experiment", "domain")
        self.reward_points = self._counter(
            "daband_reward_points_total",
            "Sum of new rewards; divided by their number it is their mean",
            *("experiment", "domain"),
        )
        self.refused_target_rewards = self._counter(
            "daband_target_rewards_refused_total",
            "Target rewards refused in the zero-shot phase; their values are not stored",
            "experiment",
        )
        self.target_selections = self._counter(
            "daband_target_selections_total",
            "Contexts decided by the target policy alone; `outcome`: answered, abstained",
            *("experiment", "outcome"),
        )
        self.target_contexts = self._counter(
            "daband_target_contexts_total",
            "Unlabeled target contexts stored without decisions",
            "experiment",
        )

    def _make_error_metrics(self) -> None:
        self.storage_errors = self._counter(
            "daband_storage_errors_total",
            "Failed uses of the database; `kind`: timeout, refused, or retried after a conflict",
            "kind",
        )
        self.bus_failures = self._counter(
            "daband_bus_failures_total", "Failed operations of the snapshot bus", "operation"
        )
        self.bus_refusals = self._counter(
            "daband_bus_refused_total",
            "Messages and snapshots of Redis that were refused; `reason`: message, format, signature, version",
            "reason",
        )
        for kind in STORAGE_ERRORS:
            self.storage_errors.labels(kind)
        for operation in BUS_OPERATIONS:
            self.bus_failures.labels(operation)

    def observe_scoring(self, batches: list[int]) -> None:
        """Pending contexts are scored in passes of these sizes."""
        self.scorer_queue.observe(sum(batches))
        for contexts in batches:
            self.scorer_batch.observe(contexts)

    def observe_append(self, event_count: int, waiting: int, seconds: float) -> None:
        """A transaction of the event log has ended; `waiting` events were pending when it began."""
        self.append_queue.observe(waiting)
        self.append_events.observe(event_count)
        self.append_seconds.observe(seconds)

    def count_decisions(self, experiment: str, domain: str, count: int, entropy: float) -> None:
        """New decisions are answered; `entropy` is the sum of their entropies in nats."""
        label = self._counted(experiment)
        self.decisions.labels(label, domain).inc(count)
        self.entropy.labels(label, domain).inc(max(0.0, entropy))

    def count_lost_decisions(self, experiment: str, count: int) -> None:
        """Decisions were answered but could not be written."""
        self.lost_decisions.labels(self._counted(experiment)).inc(count)

    def count_reward(self, experiment: str, domain: str, reward: float) -> None:
        """A new reward in [0, 1] is durable."""
        label = self._counted(experiment)
        self.rewards.labels(label, domain).inc()
        self.reward_points.labels(label, domain).inc(reward)

    def count_refused_target_reward(self, experiment: str) -> None:
        """A target reward came in the zero-shot phase."""
        self.refused_target_rewards.labels(self._counted(experiment)).inc()

    def count_target_selections(self, experiment: str, total: int, abstained: int) -> None:
        """Count decisions of the target policy."""
        label = self._counted(experiment)
        self.target_selections.labels(label, "answered").inc(total - abstained)
        self.target_selections.labels(label, "abstained").inc(abstained)

    def count_target_contexts(self, experiment: str, count: int) -> None:
        """Unlabeled target contexts are durable."""
        self.target_contexts.labels(self._counted(experiment)).inc(count)

    def count_storage_error(self, kind: str) -> None:
        self.storage_errors.labels(kind).inc()

    def count_bus_failure(self, operation: str) -> None:
        self.bus_failures.labels(operation).inc()

    def expect_bus_refusals(self, reasons: Iterable[str]) -> None:
        """Create these counters at zero, because a rate misses a first increment."""
        for reason in reasons:
            self.bus_refusals.labels(reason)

    def count_bus_refusal(self, reason: str) -> None:
        self.bus_refusals.labels(reason).inc()

    def _counted(self, experiment: str) -> str:
        """The label of an experiment, whose counters all begin at zero: a rate misses a first increment."""
        if experiment in self._begun:
            return experiment  # it is its own label
        label = self.experiment(experiment)
        if label not in self._begun:
            self._begun.add(label)
            for counter in (self.decisions, self.entropy, self.rewards, self.reward_points):
                for domain in Domain:
                    counter.labels(label, domain)
            for counter in (self.lost_decisions, self.refused_target_rewards, self.target_contexts):
                counter.labels(label)
            for outcome in ("answered", "abstained"):
                self.target_selections.labels(label, outcome)
        return label


class RequestMetrics(Registered):
    """Metrics of requests and processes."""

    def __init__(self) -> None:
        super().__init__()
        self._timers: dict[tuple[str, str, int | None], Histogram] = {}
        self.request_seconds = self._histogram(
            "daband_request_seconds",
            "Time to answer a request; `status` is a class, or `gone` if the caller disconnected",
            SECONDS,
            *("route", "method", "status"),
        )
        self.requests_in_flight = self._gauge(
            "daband_requests_in_flight", "Requests in flight", "livesum"
        )
        self.problems = self._counter("daband_problems_total", "Problem answers, by slug", "slug")
        self.processes = self._gauge(
            "daband_processes", "Serving processes and separate trainers", "livesum"
        )
        self.process_starts = self._counter(
            "daband_process_starts_total", "Starts of these processes, including replacements"
        )
        self.lost_devices = self._counter(
            "daband_devices_lost_total", "Losses of the GPU, after which the CPU is used"
        )
        self.task_deaths = self._counter(
            "daband_task_deaths_total", "Background tasks that died", "task"
        )

    def observe_request(self, route: str, method: str, status: int | None, seconds: float) -> None:
        """Observe a finished request; `status` is None if it was not answered."""
        key = (route, method, status)
        timer = self._timers.get(key)
        if timer is None:  # looking up a labelled histogram costs as much as observing
            timer = self.request_seconds.labels(route, method, _status_class(status))
            self._timers[key] = timer
        timer.observe(seconds)

    def expect_problems(self, slugs: Iterable[str]) -> None:
        """Create these counters at zero, because a rate misses a first increment."""
        for slug in slugs:
            self.problems.labels(slug)

    def expect_task(self, task: str) -> None:
        """Create the counter of a task's deaths at zero."""
        self.task_deaths.labels(task)

    def count_start(self) -> None:
        self.processes.set(1)
        self.process_starts.inc()


def _status_class(status: int | None) -> str:
    return "gone" if status is None else f"{status // 100}xx"
