"""Confidence sequences: intervals that are valid at all times simultaneously.

The predictable plug-in empirical-Bernstein sequence of Waudby-Smith and Ramdas (2020, 2022): for
x₁, x₂, … ≥ 0 with conditional mean μ ≤ 1, each bet λ_t and each centre μ̂_t depend on the past
alone, and with v_t = (x_t − μ̂_{t−1})², ψ(λ) = −log(1 − λ) − λ,

    L_t = (Σ λ_i x_i − log(1/δ) − Σ v_i ψ(λ_i)) / Σ λ_i

lies below μ for all t together with probability at least 1 − δ. The rounds need not be
independent: only the conditional mean counts, so adaptive logging is covered.
"""

import math

import numpy as np

from model.ope.intervals import Interval
from model.rounds import Doubles

_LARGEST_BET = 0.5
_FIRST_SQUARE = 0.25  # of an extra x = ½ before the first round


class LowerSequence:
    """The lower end, extended batch by batch; its state does not grow."""

    def __init__(self, miss: float) -> None:
        self._log = math.log(1.0 / miss)
        self._count = 0
        self._sum = 0.0
        self._squares = 0.0
        self._bets = 0.0
        self._gains = 0.0
        self._costs = 0.0
        self.bound = 0.0

    def extend(self, values: Doubles) -> Doubles:
        """The bound after each new value, (n,); it never falls."""
        if not len(values):
            return np.zeros(0)
        counts = self._count + np.arange(1.0, len(values) + 1.0)
        sums = self._sum + values.cumsum()
        bets = self._placed_bets(values, counts, sums)
        centres = np.minimum(_before(self._mean(), sums / counts), 1.0)
        costs = (values - centres) ** 2 * (-np.log1p(-bets) - bets)
        total_bets = self._bets + bets.cumsum()
        total_gains = self._gains + (bets * values).cumsum()
        total_costs = self._costs + costs.cumsum()
        bounds = (total_gains - total_costs - self._log) / total_bets
        bounds = np.maximum.accumulate(np.maximum(bounds, self.bound))
        self._count, self._sum = int(counts[-1]), float(sums[-1])
        self._bets, self._gains = float(total_bets[-1]), float(total_gains[-1])
        self._costs, self.bound = float(total_costs[-1]), float(bounds[-1])
        return np.asarray(bounds)

    def _mean(self) -> float:
        return self._sum / self._count if self._count else 0.0

    def _placed_bets(self, values: Doubles, counts: Doubles, sums: Doubles) -> Doubles:
        """λ_t = √(2 log(1/δ) / (σ̂²_{t−1} t log(1 + t))), at most ½, with an extra first x = ½."""
        means = np.minimum((0.5 + sums) / (counts + 1), 1.0)
        squares = self._squares + ((values - means) ** 2).cumsum()
        first = (_FIRST_SQUARE + self._squares) / (self._count + 1)
        variances = _before(first, (_FIRST_SQUARE + squares) / (counts + 1))
        self._squares = float(squares[-1])
        ideal = np.sqrt(2.0 * self._log / (counts * np.log1p(counts) * variances))
        return np.asarray(np.minimum(ideal, _LARGEST_BET))


class ValueSequence:
    """Both ends for the mean of weighted rewards wr, with E[w] = 1 and r in [0, 1].

    With a weight bound known before the data (`max_weight` = 1/p_min, K/ε for our own logs) the
    upper end comes from 1 − wr/w_max. Without one it comes from w(1 − r), whose mean is 1 − value.
    """

    def __init__(self, confidence: float, max_weight: float | None) -> None:
        miss = 0.5 * (1.0 - confidence)
        self._scale = max_weight
        self._low, self._high = LowerSequence(miss), LowerSequence(miss)

    def extend(self, weights: Doubles, rewards: Doubles) -> tuple[Doubles, Doubles]:
        """Both ends after each new round, (n,) each."""
        scale = self._scale
        if scale is None:
            lows = self._low.extend(weights * rewards)
            highs = 1.0 - self._high.extend(weights * (1.0 - rewards))
            return lows, highs
        if (weights > scale * (1.0 + 1e-9)).any():
            raise ValueError(f"max_weight: a weight exceeds the stated bound {scale:g}")
        values = weights * rewards / scale
        return scale * self._low.extend(values), scale * (1.0 - self._high.extend(1.0 - values))

    @property
    def interval(self) -> Interval:
        scale = 1.0 if self._scale is None else self._scale
        high = scale * (1.0 - self._high.bound)
        return Interval(min(1.0, scale * self._low.bound), min(1.0, high))


def _before(first: float, values: Doubles) -> Doubles:
    return np.concatenate([[first], values[:-1]])
