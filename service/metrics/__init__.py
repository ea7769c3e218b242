"""Every metric of the service, by subject. Labels come from closed sets.

Contexts, arms, ids and single rewards are never labels or values.
"""

from service.metrics.learning import LearningMetrics
from service.metrics.processes import CONTENT_TYPE, exposition
from service.metrics.serving import EventMetrics, RequestMetrics
from service.metrics.transfer import TransferMetrics


class Metrics(TransferMetrics, LearningMetrics, EventMetrics, RequestMetrics):
    """The metrics of one app, in a registry of its own."""

    content_type = CONTENT_TYPE

    def exposition(self) -> bytes:
        """All metrics in Prometheus's text format, those of the other processes included."""
        return exposition(self.registry)


__all__ = ["Metrics"]
