"""Whether a run says something of the service, or only of a generator that fell behind."""

from collections.abc import Iterable
from dataclasses import dataclass

from loadtest.generators import Played


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a generator may show; beyond, the run is invalid."""

    lag_seconds: float = 0.02  # of 99 in 100 requests, behind the time they were due
    cpu_share: float = 0.9


def faults(runs: Iterable[Played], bounds: Bounds) -> list[str]:
    """What makes the runs invalid, in words; empty when they count."""
    return [fault for played in runs for fault in _faults(played, bounds)]


def _faults(played: Played, bounds: Bounds) -> list[str]:
    found, counts = [], played.counts
    due = sum(second.due for second in counts.seconds.values())
    answered = sum(second.outcomes.total() for second in counts.seconds.values())
    rates = ", ".join(f"{segment.rate:.0f}/s" for segment in played.load.segments)
    if not due == counts.sent == answered:
        found.append(f"at {rates}: {due} requests due, {counts.sent} sent, {answered} answered")
    lag = counts.lag.quantile(0.99) if counts.lag.total else 0.0
    if lag > bounds.lag_seconds:
        found.append(
            f"at {rates}: 1 in 100 requests was sent {1e3 * lag:.1f} ms late or more, "
            f"{1e3 * bounds.lag_seconds:.0f} ms are allowed"
        )
    if (busiest := max(played.cpu_shares, default=0.0)) > bounds.cpu_share:
        found.append(f"at {rates}: a generator took {busiest:.0%} of a core")
    return found
