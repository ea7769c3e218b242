"""The base of all metric classes: one registry and one closed set of experiment labels."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
)

from service.metrics.experiment_labels import OTHER, ExperimentLabels
from service.metrics.processes import shared_folder

# How the values of several processes are merged. All modes ignore dead processes, whose last values
# would otherwise stay forever.
Merge = Literal["livesum", "livemin", "livemax", "livemostrecent"]


class Declared(NamedTuple):
    """A metric as it is documented."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


class Registered:
    """Makes metrics in one registry; the subjects are its subclasses."""

    def __init__(self) -> None:
        disable_created_metrics()  # they would double the series of counters
        self.registry = CollectorRegistry()
        self.declared: list[Declared] = []
        self._labels = ExperimentLabels(shared_folder())

    def experiment(self, name: str) -> str:
        """The label of an experiment: its name for the first ones seen, then `other`."""
        return self._labels.of(name)

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        self.declared.append(Declared(name, "counter", labels, meaning))
        return Counter(name, meaning, labels, registry=self.registry)

    def _gauge(self, name: str, meaning: str, merge: Merge, *labels: str) -> Gauge:
        self.declared.append(Declared(name, "gauge", labels, meaning))
        return Gauge(name, meaning, labels, registry=self.registry, multiprocess_mode=merge)

    def _histogram(
        self, name: str, meaning: str, buckets: Sequence[float], *labels: str
    ) -> Histogram:
        self.declared.append(Declared(name, "histogram", labels, meaning))
        return Histogram(name, meaning, labels, registry=self.registry, buckets=buckets)

    def _set(self, gauge: Gauge, experiment: str, value: float, *labels: str) -> None:
        """Set an experiment's gauge, unless it shares the label `other` with other experiments."""
        label = self.experiment(experiment)
        if label != OTHER:
            gauge.labels(label, *labels).set(value)
