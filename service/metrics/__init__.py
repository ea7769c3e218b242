"""Every metric of the service, by subject. Labels come from closed sets, never from ids.

A context, an arm, an id or the reward of one decision is never a label or a value by itself.
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
