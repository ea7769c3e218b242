"""Latencies to three digits in little memory: the log-linear buckets of HdrHistogram, kept sparse.

Every second of a run has histograms of its own, so only buckets that hold something are kept.
Histograms are merged; percentiles are never averaged.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping

SUB_BITS = 11  # 2048 buckets for a power of two and more: an error below 1/1024
MICROSECONDS = 1_000_000
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Histogram:
    """Counts of latencies, in buckets of microseconds no wider than a thousandth of their value."""

    def __init__(self, counts: Mapping[int, int] | None = None, maximum: int = 0) -> None:
        self.counts: Counter[int] = Counter(counts or {})
        self._maximum = maximum

    def record(self, seconds: float) -> None:
        """Count one latency; what is below zero, as clocks may differ a little, counts as zero."""
        value = max(0, round(seconds * MICROSECONDS))
        shift = max(0, value.bit_length() - SUB_BITS)
        self.counts[(shift << (SUB_BITS - 1)) + (value >> shift)] += 1
        self._maximum = max(self._maximum, value)

    @property
    def total(self) -> int:
        """How many latencies were counted."""
        return self.counts.total()

    @property
    def maximum(self) -> float:
        """The largest one in seconds, exactly."""
        return self._maximum / MICROSECONDS

    def quantile(self, share: float) -> float:
        """The least value in seconds that this share of the latencies does not exceed."""
        wanted = max(1, math.ceil(share * self.total))
        seen = 0
        for index in sorted(self.counts):
            seen += self.counts[index]
            if seen >= wanted:
                return min(_upper(index), self._maximum) / MICROSECONDS
        return math.nan

    def merge(self, other: "Histogram") -> None:
        """Add another's counts."""
        self.counts.update(other.counts)
        self._maximum = max(self._maximum, other._maximum)

    def summary(self) -> dict[str, float]:
        """The percentiles of a report in milliseconds; empty when nothing was counted."""
        if not self.counts:
            return {}
        found = {name: 1e3 * self.quantile(share) for name, share in QUANTILES.items()}
        return {**found, "max": 1e3 * self.maximum}


def merged(histograms: Iterable[Histogram]) -> Histogram:
    """One histogram of all counts."""
    whole = Histogram()
    for histogram in histograms:
        whole.merge(histogram)
    return whole


def _upper(index: int) -> int:
    """The largest value that falls into a bucket."""
    shift = max(0, (index >> (SUB_BITS - 1)) - 1)
    return ((index - (shift << (SUB_BITS - 1)) + 1) << shift) - 1
