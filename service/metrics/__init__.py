"""Every metric of the service, by subject. Labels come from closed sets.

Contexts, arms, ids and single rewards are never labels or values.
"""

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from service.metrics.learning import LearningMetrics
from service.metrics.processes import shared_folder
from service.metrics.serving import EventMetrics, RequestMetrics
from service.metrics.transfer import TransferMetrics


class Metrics(TransferMetrics, LearningMetrics, EventMetrics, RequestMetrics):
    """The metrics of one app, in a registry of its own."""

    content_type = CONTENT_TYPE_LATEST

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format, those of the other processes included."""
        if shared_folder() is None:
            return generate_latest(self.registry)
        merged = CollectorRegistry()
        MultiProcessCollector(merged)
        return generate_latest(merged)


__all__ = ["Metrics"]
