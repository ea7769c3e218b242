"""Metrics of the trainer and of the policies that it publishes."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from service.metrics.registered import Registered

EPISODE_SECONDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
VERDICTS = ("accepted", "refused")


class LearningMetrics(Registered):
    """Metrics of learning and of the lag of served policies."""

    def __init__(self) -> None:
        super().__init__()
        self._failing: set[str] = set()
        self._make_policy_metrics()
        self._make_trainer_metrics()
        self._make_episode_metrics()

    def _make_policy_metrics(self) -> None:
        self.policy_version = self._gauge(
            "daband_policy_version",
            "Version of the served policy; the oldest if processes differ",
            *("livemin", "experiment"),
        )
        self.policy_created = self._gauge(
            "daband_policy_created_timestamp_seconds",
            "Publication time of the served policy; its age is time() minus this",
            *("livemin", "experiment"),
        )
        self.policy_lag = self._gauge(
            "daband_policy_lag_events",
            "Events of the log that are newer than the served policy",
            *("livemax", "experiment"),
        )

    def _make_trainer_metrics(self) -> None:
        self.trainer_lag = self._gauge(
            "daband_trainer_lag_events",
            "Events of the log that are not folded yet",
            *("livemostrecent", "experiment"),
        )
        self.trainer_blocked = self._gauge(
            "daband_trainer_blocked",
            "1 while a restore or promotion is blocked by damaged stored bytes",
            *("livemostrecent", "experiment"),
        )
        self.learning_failing = self._gauge(
            "daband_learning_failing",
            "1 while an experiment's encoders cannot be trained or its log cannot be folded",
            *("livemostrecent", "experiment"),
        )
        self.led_experiments = self._gauge(
            "daband_led_experiments", "Experiments whose learners are in memory", "livesum"
        )
        self.waiting_experiments = self._gauge(
            "daband_waiting_experiments",
            "Experiments with pending events that wait for memory",
            "livesum",
        )
        self.waiting_trainings = self._gauge(
            "daband_waiting_trainings",
            "Trainings and judgements that wait for a process",
            "livesum",
        )
        self.due_updates = self._gauge(
            "daband_due_updates",
            "Encoder updates that follow the one under way, for rewards that were not trained on",
            *("livemostrecent", "experiment"),
        )
        self.condition_number = self._gauge(
            "daband_condition_number",
            "Largest condition number of A",
            *("livemostrecent", "experiment"),
        )
        self.snapshot_bytes = self._gauge(
            "daband_snapshot_bytes",
            "Size of the newest snapshot",
            *("livemostrecent", "experiment"),
        )

    def _make_episode_metrics(self) -> None:
        self.episode_seconds = self._histogram(
            "daband_episode_seconds", "Time to train an encoder", EPISODE_SECONDS, "experiment"
        )
        self.training_process_deaths = self._counter(
            "daband_training_process_deaths_total",
            "Training processes that died and were replaced",
        )
        self.loss = self._gauge(
            "daband_loss",
            "Mean of a weighted loss term over the last training",
            *("livemostrecent", "experiment", "term"),
        )
        self.gate_verdicts = self._counter(
            "daband_gate_verdicts_total",
            "Trained encoders by the gate's `verdict`: accepted, refused",
            *("experiment", "verdict"),
        )

    def set_policy(self, experiment: str, version: int, created_at: datetime) -> None:
        """Another policy is served."""
        self._set(self.policy_version, experiment, version)
        self._set(self.policy_created, experiment, created_at.timestamp())

    def set_policy_lag(self, experiment: str, event_count: int) -> None:
        """Set the number of events that are newer than the served policy."""
        self._set(self.policy_lag, experiment, event_count)

    def begin_leading(self, experiment: str) -> None:
        """A trainer leads: create its counters at zero, because a rate misses a first increment."""
        label = self.experiment(experiment)
        self.episode_seconds.labels(label)
        for verdict in VERDICTS:
            self.gate_verdicts.labels(label, verdict)
        self._set(self.learning_failing, experiment, experiment in self._failing)

    def set_lag(self, experiment: str, event_count: int) -> None:
        """Set the number of events that are not folded yet."""
        self._set(self.trainer_lag, experiment, event_count)

    def set_due_updates(self, experiment: str, update_count: int) -> None:
        """So many encoder updates are due."""
        self._set(self.due_updates, experiment, update_count)

    def set_blocked(self, experiment: str, *, is_blocked: bool) -> None:
        self._set(self.trainer_blocked, experiment, is_blocked)

    def set_failing(self, experiments: Iterable[str]) -> None:
        """Set the experiments whose learning fails."""
        names = set(experiments)
        for name in self._failing - names:
            self._set(self.learning_failing, name, 0)
        for name in names:
            self._set(self.learning_failing, name, 1)
        self._failing = names

    def set_led(self, led_count: int, waiting_count: int) -> None:
        """Set the number of experiments that are led and that wait to be led."""
        self.led_experiments.set(led_count)
        self.waiting_experiments.set(waiting_count)

    def observe_snapshot(self, experiment: str, size_bytes: int, condition_number: float) -> None:
        self._set(self.snapshot_bytes, experiment, size_bytes)
        self._set(self.condition_number, experiment, condition_number)

    def observe_episode(
        self, experiment: str, seconds: float, losses: Mapping[str, float], *, is_accepted: bool
    ) -> None:
        """An encoder was trained and judged; `losses` are its terms by name."""
        label = self.experiment(experiment)
        self.episode_seconds.labels(label).observe(seconds)
        self.gate_verdicts.labels(label, "accepted" if is_accepted else "refused").inc()
        for term, value in losses.items():
            self._set(self.loss, experiment, value, term)
