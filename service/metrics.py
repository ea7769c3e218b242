"""Every metric of the service. Labels come from closed sets, never from ids.

With several serving processes, prometheus_client shares the numbers through the files of the
folder that PROMETHEUS_MULTIPROC_DIR names, which must be set before the process starts.
"""

import os
from datetime import datetime
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
MAX_EXPERIMENTS = 50
OTHER = "other"

REQUEST_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
EPISODE_BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Metrics:
    """The metrics of one app, in a registry of its own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._experiments: set[str] = set()
        self._make_request_metrics()
        self._make_event_metrics()
        self._make_training_metrics()

    def _make_request_metrics(self) -> None:
        self.request_seconds = Histogram(
            "daband_request_seconds",
            "Time to answer a request",
            ("route", "method", "status"),
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self.requests_in_flight = Gauge(
            "daband_requests_in_flight",
            "Requests at work",
            multiprocess_mode="livesum",
            registry=self.registry,
        )
        self.problems = Counter(
            "daband_problems_total",
            "Problems that callers were answered, by slug",
            ("slug",),
            registry=self.registry,
        )

    def _make_event_metrics(self) -> None:
        self.append_seconds = Histogram(
            "daband_append_seconds",
            "Time of a transaction that appends to the event log",
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self.append_events = Histogram(
            "daband_append_events",
            "Events in a transaction that appends to the event log",
            buckets=BATCH_BUCKETS,
            registry=self.registry,
        )
        labels = ("experiment", "domain")
        self.decisions = Counter(
            "daband_decisions_total", "New decisions", labels, registry=self.registry
        )
        self.rewards = Counter(
            "daband_rewards_total", "New rewards", labels, registry=self.registry
        )
        self.refused_target_rewards = Counter(
            "daband_target_rewards_refused_total",
            "Target rewards that came in the zero-shot phase; their values are kept nowhere",
            ("experiment",),
            registry=self.registry,
        )
        self.target_selections = Counter(
            "daband_target_selections_total",
            "Contexts that the target policy alone was asked for, by whether it abstained",
            ("experiment", "outcome"),
            registry=self.registry,
        )
        self.target_contexts = Counter(
            "daband_target_contexts_total",
            "Unlabeled target contexts stored beside decisions",
            ("experiment",),
            registry=self.registry,
        )
        self.bus_failures = Counter(
            "daband_bus_failures_total",
            "Failed operations of the snapshot bus",
            ("operation",),
            registry=self.registry,
        )
        self.task_deaths = Counter(
            "daband_task_deaths_total",
            "Background tasks that died",
            ("task",),
            registry=self.registry,
        )

    def _make_training_metrics(self) -> None:
        self.policy_version = self._gauge_by_experiment(
            "daband_policy_version", "Version of the policy that serves"
        )
        self.policy_created = self._gauge_by_experiment(
            "daband_policy_created_timestamp_seconds",
            "When the policy that serves was published; its age is time() less this",
        )
        self.trainer_lag = self._gauge_by_experiment(
            "daband_trainer_lag_events", "Newest offset of the log less the folded one"
        )
        self.trainer_blocked = self._gauge_by_experiment(
            "daband_trainer_blocked",
            "1 while a restore or promotion waits for stored bytes that are damaged",
        )
        self.condition_number = self._gauge_by_experiment(
            "daband_condition_number", "Largest condition number of A"
        )
        self.snapshot_bytes = self._gauge_by_experiment(
            "daband_snapshot_bytes", "Size of the newest snapshot"
        )
        self.domain_accuracy = self._gauge_by_experiment(
            "daband_domain_accuracy",
            "Held-out accuracy of a fresh discriminator on latents: 0.5 cannot tell the domains apart",
        )
        self.episode_seconds = Histogram(
            "daband_episode_seconds",
            "Time to train an encoder",
            ("experiment",),
            buckets=EPISODE_BUCKETS,
            registry=self.registry,
        )
        self.gate_verdicts = Counter(
            "daband_gate_verdicts_total",
            "Trained encoders by the gate's verdict",
            ("experiment", "verdict"),
            registry=self.registry,
        )

    def _gauge_by_experiment(self, name: str, meaning: str) -> Gauge:
        return Gauge(
            name,
            meaning,
            ("experiment",),
            multiprocess_mode="mostrecent",
            registry=self.registry,
        )

    def experiment(self, name: str) -> str:
        """The label of an experiment: its name for the first 50 seen, then `other`."""
        if name in self._experiments:
            return name
        if len(self._experiments) >= MAX_EXPERIMENTS:
            return OTHER
        self._experiments.add(name)
        return name

    def count_decision(self, experiment: str, domain: str) -> None:
        """A new decision is durable."""
        self.decisions.labels(self.experiment(experiment), domain).inc()

    def count_reward(self, experiment: str, domain: str) -> None:
        """A new reward is durable."""
        self.rewards.labels(self.experiment(experiment), domain).inc()

    def count_refused_target_reward(self, experiment: str) -> None:
        """A target reward came in the zero-shot phase."""
        self.refused_target_rewards.labels(self.experiment(experiment)).inc()

    def count_target_selections(self, experiment: str, total: int, abstained: int) -> None:
        """The target policy alone was asked."""
        label = self.experiment(experiment)
        self.target_selections.labels(label, "answered").inc(total - abstained)
        self.target_selections.labels(label, "abstained").inc(abstained)

    def count_target_contexts(self, experiment: str, count: int) -> None:
        """Unlabeled target contexts are durable."""
        self.target_contexts.labels(self.experiment(experiment)).inc(count)

    def observe_append(self, event_count: int, seconds: float) -> None:
        """A transaction of the event log is over."""
        self.append_events.observe(event_count)
        self.append_seconds.observe(seconds)

    def count_bus_failure(self, operation: str) -> None:
        """The snapshot bus failed at an operation."""
        self.bus_failures.labels(operation).inc()

    def set_policy(self, experiment: str, version: int, created_at: datetime) -> None:
        """Another policy serves."""
        label = self.experiment(experiment)
        self.policy_version.labels(label).set(version)
        self.policy_created.labels(label).set(created_at.timestamp())

    def set_lag(self, experiment: str, event_count: int) -> None:
        """So many events wait to be folded."""
        self.trainer_lag.labels(self.experiment(experiment)).set(event_count)

    def set_blocked(self, experiment: str, *, is_blocked: bool) -> None:
        """A restore or promotion waits, or no longer does."""
        self.trainer_blocked.labels(self.experiment(experiment)).set(is_blocked)

    def observe_snapshot(self, experiment: str, size_bytes: int, condition_number: float) -> None:
        """A snapshot was saved."""
        label = self.experiment(experiment)
        self.snapshot_bytes.labels(label).set(size_bytes)
        self.condition_number.labels(label).set(condition_number)

    def set_transfer(self, experiment: str, domain_accuracy: float) -> None:
        """The transfer of an encoder was judged."""
        self.domain_accuracy.labels(self.experiment(experiment)).set(domain_accuracy)

    def observe_episode(self, experiment: str, seconds: float, *, is_accepted: bool) -> None:
        """An encoder was trained and judged."""
        label = self.experiment(experiment)
        self.episode_seconds.labels(label).observe(seconds)
        self.gate_verdicts.labels(label, "accepted" if is_accepted else "refused").inc()

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format, those of the other processes included."""
        if MULTIPROCESS_VARIABLE not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        return generate_latest(registry)


def forget_dead_processes(folder: Path) -> None:
    """Drop the gauges of serving processes that are gone."""
    for path in folder.glob("gauge_live*_*.db"):
        process_id = int(path.stem.rpartition("_")[2])
        if not Path(f"/proc/{process_id}").exists():
            mark_process_dead(process_id, str(folder))
