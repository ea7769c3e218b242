"""Intervals for a fixed number of rounds: Cressie-Read, Clopper-Pearson, bootstrap.

They are valid for one planned look at the data. Repeated looks need the confidence sequence
(`model.ope.sequence`).
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from model.ope.beta import beta_quantile, f_quantile
from model.randomness import generator
from model.rounds import Doubles


class Interval(NamedTuple):
    """A range that contains the value with the stated confidence."""

    low: float
    high: float


_MOST_BLOCKS = 4096  # rounds up to here are resampled one by one


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over rounds of weights w ≥ 0 and of the rounds' values y, where y = wr for IPS."""

    n: float
    w: float
    w2: float
    y: float
    wy: float
    y2: float


def clopper_pearson(successes: float, trials: float, confidence: float) -> Interval:
    """The exact binomial interval; conservative for sums of trials in [0, 1]."""
    tail = 0.5 * (1.0 - confidence)
    failures = trials - successes
    low = beta_quantile(tail, successes, failures + 1.0) if successes > 0 else 0.0
    high = beta_quantile(1.0 - tail, successes + 1.0, failures) if failures > 0 else 1.0
    return Interval(low, high)


def cressie_read(
    sums: Moments, confidence: float, max_weight: float = math.inf, predicted: float = 0.0
) -> Interval:
    """All means of y under distributions near the sample (Euclidean likelihood) with E[w] = 1.

    Karampatziakis, Langford, Mineiro 2020. One extra round with weight 0 or `max_weight` and reward 0 or
    1 is added to the n rounds, so that E[w] = 1 can always be met. Its value is q + w(r − q), where
    q = `predicted` is 0 for IPS and the mean prediction for doubly robust values.
    """
    critical = _distance_to_unit_weight(sums, max_weight) + f_quantile(confidence, sums.n)
    low = min(_ends(sums, critical, _ExtraRound(max_weight, 0.0, predicted), -1.0), default=0.0)
    high = max(_ends(sums, critical, _ExtraRound(max_weight, 1.0, predicted), +1.0), default=1.0)
    return Interval(min(1.0, max(0.0, low)), min(1.0, max(0.0, high)))


class _ExtraRound(NamedTuple):
    max_weight: float
    reward: float
    predicted: float


def _distance_to_unit_weight(sums: Moments, max_weight: float) -> float:
    """The likelihood distance of the sample from E[w] = 1 alone."""
    extra = max_weight if sums.w < sums.n else 0.0
    if extra == math.inf:
        return 1.0 + 1.0 / sums.n
    size = sums.n + 1.0
    mean = (extra + sums.w) / size
    variance = (extra**2 + sums.w2) / size - mean**2
    return size * (mean - 1.0) ** 2 / variance if variance > 0 else 0.0


def _ends(sums: Moments, critical: float, extra: _ExtraRound, sign: float) -> list[float]:
    ends = _end(sums, critical, 0.0, extra.predicted, sign)
    if extra.max_weight == math.inf:
        return ends + _end_at_infinity(sums, critical, extra, sign)
    weight = extra.max_weight
    worth = extra.predicted + weight * (extra.reward - extra.predicted)
    return ends + _end(sums, critical, weight, worth, sign)


def _end(sums: Moments, critical: float, weight: float, worth: float, sign: float) -> list[float]:
    """The mean of y regressed to E[w] = 1, moved as far as the likelihood allows."""
    size = sums.n + 1.0
    w, y = (weight + sums.w) / size, (worth + sums.y) / size
    variance = (weight**2 + sums.w2) / size - w**2
    if variance <= 0.0:
        return []
    covariance = (weight * worth + sums.wy) / size - w * y
    residual = (worth**2 + sums.y2) / size - y**2 - covariance**2 / variance
    center = y + (1.0 - w) * covariance / variance
    return _moved(center, residual, critical / size - (1.0 - w) ** 2 / variance, sign)


def _end_at_infinity(
    sums: Moments, critical: float, extra: _ExtraRound, sign: float
) -> list[float]:
    """The limit of `_end` as the extra round's weight goes to infinity."""
    size = sums.n + 1.0
    slope = extra.reward - extra.predicted  # value per unit of weight
    gap = sums.y - slope * sums.w
    spread = (slope**2 * sums.w2 - 2 * slope * sums.wy + sums.y2) / size
    residual = spread - gap**2 / (sums.n * size)
    return _moved(slope + gap / sums.n, residual, critical / size - 1.0 / sums.n, sign)


def _moved(center: float, residual: float, slack: float, sign: float) -> list[float]:
    product = residual * slack
    if product < 0.0 and not math.isclose(product, 0.0, abs_tol=1e-18):
        return []
    return [center + sign * math.sqrt(max(0.0, product))]


class Blocks:
    """Sums of values over equal runs of rounds, at most `capacity` of them.

    When they are full, neighbours are joined, so that the bootstrap's memory does not grow with the
    log. Up to `capacity` rounds each block is one round: the ordinary bootstrap.
    """

    def __init__(self, capacity: int = _MOST_BLOCKS) -> None:
        self.capacity = capacity
        self.size = 1
        self._sums = np.zeros(0)
        self._rest = np.zeros(0)

    def add(self, values: Doubles) -> None:
        pending = np.concatenate([self._rest, values])
        while len(self._sums) + len(pending) // self.size > self.capacity:
            self._join()
        whole = len(pending) // self.size * self.size
        sums = pending[:whole].reshape(-1, self.size).sum(axis=1)
        self._sums, self._rest = np.concatenate([self._sums, sums]), pending[whole:]

    def _join(self) -> None:
        # A single last block has no neighbour: its sum is spread evenly over its rounds again.
        if len(self._sums) % 2:
            spread = np.full(self.size, self._sums[-1] / self.size)
            self._sums, self._rest = self._sums[:-1], np.concatenate([spread, self._rest])
        self._sums = self._sums.reshape(-1, 2).sum(axis=1)
        self.size *= 2

    def bootstrap(self, confidence: float, seed: int, resamples: int = 2000) -> Interval:
        """The percentile interval of the mean over resampled blocks."""
        means = self._sums / self.size
        rng = generator(seed, "bootstrap")
        found = [means[rng.integers(len(means), size=len(means))].mean() for _ in range(resamples)]
        tail = 0.5 * (1.0 - confidence)
        low, high = np.quantile(found, [tail, 1.0 - tail])
        return Interval(float(low), float(high))
