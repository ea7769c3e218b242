"""Estimators as running sums over rounds: one pass over any number of rounds.

With w = π(a|x)/p, q̂ the reward model and q̂_π = Σ_a π(a|x) q̂(x, a), a round is worth

    IPS w·r   ·   SNIPS Σwr / Σw   ·   DM q̂_π   ·   DR q̂_π + w(r − q̂)   ·   SWITCH-DR q̂_π + [w ≤ τ]·w(r − q̂)

and replay (Li 2011) keeps the rounds whose logged arm the policy would have chosen.
"""

from dataclasses import dataclass

import numpy as np

from model.ope.intervals import Blocks, Interval, Moments, clopper_pearson, cressie_read
from model.ope.logged import LoggedRounds
from model.ope.sequence import ValueSequence
from model.ope.valuation import (
    LEAST_EFFECTIVE,
    NO_BOUND,
    TOO_FEW,
    Estimate,
    Support,
    Valuation,
    standard_error,
    warnings_of,
)
from model.randomness import KeyedUniforms
from model.rounds import Doubles

SWITCHES = np.array([1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, np.inf])

_ROUNDING = 1e-9  # of a propensity that was stored as 1/K


@dataclass(frozen=True, slots=True)
class EvaluationOptions:
    """The options of a valuation; `max_weight` must be known before the data."""

    confidence: float = 0.95
    max_weight: float | None = None
    seed: int = 0
    switch: float | None = None


class ValueEstimator:
    """Adds rounds batch by batch and gives a valuation at any time."""

    def __init__(self, options: EvaluationOptions | None = None) -> None:
        self.options = options or EvaluationOptions()
        self._weights = np.zeros(3)  # n, Σw, Σw²
        self._weighted = np.zeros(3)  # Σy, Σwy, Σy² of y = wr
        self._robust = np.zeros(3)  # the same of y = q̂_π + w(r − q̂)
        self._direct = np.zeros(2)
        self._switched = np.zeros((2, len(self._switches)))
        self._cut = np.zeros(len(self._switches))
        self._matched = np.zeros(3)
        self._max_weight = 0.0
        self._overlap: float | None = 0.0
        self._is_uniform = True
        self._versions: set[int] = set()
        self._blocks = Blocks()
        self.sequence = ValueSequence(self.options.confidence, self.options.max_weight)
        self._draws = KeyedUniforms(self.options.seed, "replay")

    @property
    def _switches(self) -> Doubles:
        given = self.options.switch
        return SWITCHES if given is None else np.array([given])

    def add(
        self,
        rounds: LoggedRounds,
        policy: Doubles,
        predicted: Doubles,
        weights: Doubles | None = None,
    ) -> tuple[Doubles, Doubles]:
        """Add rounds; returns the ends of the confidence sequence after each of them, (n,) each.

        The policy's probabilities and q̂, both (n, K), must not depend on the rounds' rewards. `weights`
        (n,) replace π/p and must also have conditional mean 1.
        """
        if weights is None:
            weights = rounds.at_chosen(policy) / rounds.propensities
        rewards = rounds.rewards
        direct = (policy * predicted).sum(axis=1)
        correction = weights * (rewards - rounds.at_chosen(predicted))
        self._weights += len(rounds), weights.sum(), (weights**2).sum()
        _add_worth(self._weighted, weights, weights * rewards)
        _add_worth(self._robust, weights, direct + correction)
        self._max_weight = max(self._max_weight, float(weights.max(initial=0.0)))
        self._direct += direct.sum(), (direct**2).sum()
        self._blocks.add(direct + correction)
        self._add_switched(weights, direct, correction)
        self._add_replayed(rounds, policy)
        self._note_support(rounds, policy)
        return self.sequence.extend(weights, rewards)

    def _add_switched(self, weights: Doubles, direct: Doubles, correction: Doubles) -> None:
        for index, switch in enumerate(self._switches):
            is_kept = weights <= switch
            values = direct + is_kept * correction
            self._switched[:, index] += values.sum(), (values**2).sum()
            self._cut[index] += weights[~is_kept].sum()

    def _add_replayed(self, rounds: LoggedRounds, policy: Doubles) -> None:
        # Draw the policy's arm and keep the round if it is the logged arm.
        kept = self._draws.many(rounds.keys) < rounds.at_chosen(policy)
        rewards = rounds.rewards[kept]
        self._matched += len(rewards), rewards.sum(), (rewards**2).sum()

    def _note_support(self, rounds: LoggedRounds, policy: Doubles) -> None:
        logged = rounds.logged_probabilities
        if logged is None or self._overlap is None:
            self._overlap = None
        else:
            self._overlap += float((policy * (logged > 0)).sum())
        even = np.abs(rounds.propensities * rounds.arm_counts - 1.0)
        self._is_uniform &= bool((even < _ROUNDING).all())
        self._versions.update(np.unique(rounds.versions).tolist())

    @property
    def moments(self) -> Moments:
        """The sums for the intervals of weighted rewards."""
        return Moments(*self._weights.tolist(), *self._weighted.tolist())

    @property
    def robust_value(self) -> float | None:
        """The present DR estimate."""
        count, total = float(self._weights[0]), float(self._robust[0])
        return total / count if count else None

    def support(self) -> Support:
        """How well the log supports the policy so far."""
        sums = self.moments
        return Support(
            rounds=int(sums.n),
            effective_rounds=sums.w**2 / sums.w2 if sums.w2 else 0.0,
            mean_weight=sums.w / sums.n if sums.n else 0.0,
            max_weight=self._max_weight,
            overlap=None if self._overlap is None or not sums.n else self._overlap / sums.n,
            is_uniform_log=self._is_uniform,
            version_count=len(self._versions),
        )

    def valuation(self) -> Valuation:
        """The present estimates. DM is never the headline, because its error has no bound."""
        support = self.support()
        index = self._best_switch()
        found = [
            self._replay(support),
            self._inverse_propensity(support),
            self._self_normalised(support),
            _mean("dm", self._direct, support.rounds),
            self._doubly_robust(support),
            _mean("switch_dr", self._switched[:, index], support.rounds),
        ]
        is_stated = support.effective_rounds >= LEAST_EFFECTIVE
        return Valuation(
            support=support,
            estimates={each.estimator: each for each in found},
            headline="dr",
            sequence=self.sequence.interval if is_stated else None,
            sequence_bound=self.options.max_weight,
            switch=float(self._switches[index]),
            warnings=warnings_of(support, self.moments),
        )

    def _replay(self, support: Support) -> Estimate:
        count, total, squares = self._matched.tolist()
        if not support.is_uniform_log or not count:
            return Estimate("replay", None)
        value = total / count
        error = standard_error(total, squares, count)
        if count < LEAST_EFFECTIVE:
            return Estimate("replay", value, error, no_interval=TOO_FEW)
        interval = clopper_pearson(total, count, self.options.confidence)
        return Estimate("replay", value, error, interval, "Clopper-Pearson")

    def _inverse_propensity(self, support: Support) -> Estimate:
        sums = self.moments
        if not sums.n:
            return Estimate("ips", None)
        value, error = sums.y / sums.n, standard_error(sums.y, sums.y2, sums.n)
        if support.effective_rounds < LEAST_EFFECTIVE:
            return Estimate("ips", value, error, no_interval=TOO_FEW)
        # The largest weight seen is no bound: a log that missed the rare large weights looks certain.
        bound = self.options.max_weight
        if bound is None:
            return Estimate("ips", value, error, no_interval=NO_BOUND)
        # wr/w_max lies in [0, 1]: n trials whose successes count w_max each. (n/w_max trials would
        # ignore that the number of matching rounds is random.)
        low, high = clopper_pearson(sums.y / bound, sums.n, self.options.confidence)
        interval = Interval(bound * low, min(1.0, bound * high))
        return Estimate("ips", value, error, interval, "Clopper-Pearson")

    def _self_normalised(self, support: Support) -> Estimate:
        sums = self.moments
        if not sums.w:
            return Estimate("snips", None)
        value = sums.y / sums.w
        squares = sums.y2 - 2 * value * sums.wy + value**2 * sums.w2
        error = float(np.sqrt(max(0.0, squares)) / sums.w)
        if support.effective_rounds < LEAST_EFFECTIVE:
            return Estimate("snips", value, error, no_interval=TOO_FEW)
        interval = cressie_read(sums, self.options.confidence, self._weight_bound())
        return Estimate("snips", value, error, interval, "Cressie-Read")

    def _doubly_robust(self, support: Support) -> Estimate:
        sums = Moments(*self._weights.tolist(), *self._robust.tolist())
        if not sums.n:
            return Estimate("dr", None)
        value, error = sums.y / sums.n, standard_error(sums.y, sums.y2, sums.n)
        if support.effective_rounds < LEAST_EFFECTIVE:
            return Estimate("dr", value, error, no_interval=TOO_FEW)
        predicted = float(self._direct[0]) / sums.n
        interval = cressie_read(sums, self.options.confidence, self._weight_bound(), predicted)
        return Estimate("dr", value, error, interval, "Cressie-Read")

    def bootstrap(self) -> Interval | None:
        """The percentile interval of DR over resampled rounds, for comparison in reports.

        It is too narrow if few rounds have most of the weight, so decisions should not rest on it.
        """
        if self.support().effective_rounds < LEAST_EFFECTIVE:
            return None
        return self._blocks.bootstrap(self.options.confidence, self.options.seed)

    def _weight_bound(self) -> float:
        known = self.options.max_weight
        return np.inf if known is None else max(known, self._max_weight)

    def _best_switch(self) -> int:
        """The τ with the least variance plus squared bound on the bias (Wang 2017)."""
        n = max(1.0, self.moments.n)
        variances = self._switched[1] / n - (self._switched[0] / n) ** 2
        return int(np.argmin(variances / n + (self._cut / n) ** 2))


def _add_worth(sums: Doubles, weights: Doubles, worth: Doubles) -> None:
    sums += worth.sum(), (weights * worth).sum(), (worth**2).sum()


def _mean(name: str, sums: Doubles, n: float) -> Estimate:
    if not n:
        return Estimate(name, None)
    total, squares = sums.tolist()
    return Estimate(name, total / n, standard_error(total, squares, n))
