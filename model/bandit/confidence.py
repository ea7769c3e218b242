"""Confidence: the expected reward of a target decision, without target rewards.

    confidence = p(reward | margin) · agreement

- p: logistic in the margin between best and second-best mean, fitted to held-out source rounds;
- agreement: how often independent members of the ensemble choose the same arm on the target, as a share of
  how often they do on the held-out source, at most 1. Members that were aligned do not count. One network
  alone has nothing to compare; its agreement counts as 1.

If exactly one arm pays, this is the probability that the decision is right.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, Self

import numpy as np

from model.config import BanditConfig
from model.rounds import UNKNOWN_PROPENSITY, Booleans, Doubles, Integers

LEAST_ROUNDS = 32  # minimum of held-out source rounds and of target contexts
MOST_LATENTS = 512  # maximum of target latents used
LEAST_PROPENSITY = 0.05  # bounds the weight of one round
_RIDGE = 1.0  # on the slope: a few subjects never give certainty
_INTERCEPT_RIDGE = 1e-3  # keeps Newton's system solvable
_LEAST_SLOPE = 1e-3  # decisions with a larger margin always rank higher
_NEWTON_STEPS = 10
_LONGEST_STEP = 5.0  # Newton's steps overshoot where classes are separable
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out source rounds under one encoder: predictions (n, M), everything else (n,).

    `repeats` counts the rounds of the same context: each context counts once.
    """

    predicted: Doubles
    arms: Integers
    rewards: Doubles
    propensities: Doubles
    repeats: Integers


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often independent members agree on the target, as a share of how often they do on the source."""

    members: int  # with fewer than two there is nothing to compare
    share: float

    @classmethod
    def of(cls, source: Integers, target: Integers) -> Self:
        """From the members' choices (n, T) for held-out source contexts and (m, T) for target contexts."""
        members = source.shape[1]
        usual = _pairs_agreeing(source) if members > 1 and len(source) else 0.0
        return cls(members, min(1.0, _pairs_agreeing(target) / usual) if usual else 1.0)


def _pairs_agreeing(choices: Integers) -> float:
    """The mean share of rows (n, T) in which two members choose the same arm."""
    pairs = combinations(range(choices.shape[1]), 2)
    return float(np.mean([(choices[:, one] == choices[:, other]).mean() for one, other in pairs]))


@dataclass(frozen=True, slots=True)
class Confidence:
    """A fitted model that rates target decisions; `decision` (2,) are intercept and slope of p."""

    decision: Doubles
    agreement: float
    members: int

    @classmethod
    def fitted(cls, held_out: HeldOut, agreement: Agreement, config: BanditConfig) -> Self | None:
        """From held-out source rounds and the members' agreement on the target."""
        if len(held_out.arms) < LEAST_ROUNDS:
            return None
        return cls(_calibrated(held_out, config), agreement.share, agreement.members)

    def arrays(self) -> dict[str, Any]:
        """All of it as arrays by name."""
        return {name: np.asarray(value) for name, value in asdict(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """The inverse of `arrays`; ValueError for arrays that it cannot have written."""
        shapes = {"decision": (2,), "agreement": (), "members": ()}
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise ValueError("wrong content or shape")
        kinds = {"decision": np.float64, "agreement": np.float64, "members": np.int64}
        if any(arrays[name].dtype != kind for name, kind in kinds.items()):
            raise ValueError("wrong type")
        if not 0 <= arrays["agreement"] <= 1 or arrays["members"] < 0:
            raise ValueError("out of range")
        return cls(arrays["decision"], float(arrays["agreement"]), int(arrays["members"]))

    def rate(self, scores: Doubles) -> Doubles:
        """Confidences (n,) of decisions with these `decision_scores`."""
        return self.agreement * _sigmoid(self.decision[0] + self.decision[1] * scores)


def decision_scores(mean: Doubles, is_joint: bool, eligible: Booleans | None = None) -> Doubles:
    """The margin of each decision, (n,): best mean minus second-best mean.

    With one arm, or in a joint model, it is the best mean itself.
    """
    if eligible is not None:
        mean = np.where(eligible, mean, -np.inf)
    if is_joint or mean.shape[1] < 2:
        return np.asarray(mean.max(axis=1))
    best_two = np.partition(mean, -2, axis=1)[:, -2:]
    gap = best_two[:, 1] - best_two[:, 0]
    return np.where(np.isfinite(gap), gap, best_two[:, 1])


def known_propensities(propensities: Doubles, arms: Integers) -> Doubles:
    """The propensities (n,); how often an arm was chosen without one stands in for an unknown one."""
    unknown = propensities == UNKNOWN_PROPENSITY
    if not unknown.any():
        return propensities
    counts = np.bincount(arms[unknown])
    found = propensities.copy()
    found[unknown] = counts[arms[unknown]] / unknown.sum()
    return found


def _calibrated(held_out: HeldOut, config: BanditConfig) -> Doubles:
    """Intercept and slope of p(reward | margin) over rounds that show the best-rated arm's reward."""
    scores = decision_scores(held_out.predicted, config.is_joint)
    outcomes, chance = _outcomes(held_out, config)
    known = chance > 0
    if known.sum() < LEAST_ROUNDS // 2:
        return np.zeros(2)  # p = ½
    weights = 1.0 / (chance[known].clip(LEAST_PROPENSITY) * held_out.repeats[known])
    count = (1.0 / held_out.repeats[known]).sum()
    weights *= count / weights.sum()
    # Platt's smoothed targets: a few rounds never give certainty.
    smooth = outcomes[known] * (1 - 2 / (count + 2)) + 1 / (count + 2)
    fitted = logistic_fit(scores[known][:, None], smooth, weights, _RIDGE)
    if fitted[1] >= _LEAST_SLOPE:
        return fitted
    # A negative slope is noise: the level is what was seen, and the margin still gives the order.
    level = float(np.average(smooth, weights=weights))
    return np.array([np.log(level / (1 - level)), _LEAST_SLOPE])


def _outcomes(held_out: HeldOut, config: BanditConfig) -> tuple[Doubles, Doubles]:
    """The reward of the best-rated arm, and the chance that a round shows it; 0 if this one does not.

    If exactly one arm pays, another arm's reward of 1 shows that the best-rated arm would have paid 0. Then
    a right decision shows with the propensity of its arm, and a wrong one also with that of the paying
    arm. Only the chosen arm's propensity is known; the other arms share the rest evenly.
    """
    rewards, arm_count = held_out.rewards, held_out.predicted.shape[1]
    if config.is_joint:
        return rewards, np.ones(len(rewards))
    chosen = known_propensities(held_out.propensities, held_out.arms)
    is_greedy = held_out.predicted.argmax(axis=1) == held_out.arms
    if not config.exclusive_rewards or arm_count < 2:
        return rewards, np.where(is_greedy, chosen, 0.0)
    if arm_count == 2:
        return np.where(is_greedy, rewards, 1.0 - rewards), np.ones(len(rewards))
    another = (1.0 - chosen) / (arm_count - 1)
    is_right = is_greedy & (rewards == 1.0)
    is_wrong = is_greedy != (rewards == 1.0)
    chance = np.where(is_right, chosen, np.where(is_wrong, chosen + another, 0.0))
    return is_right.astype(np.float64), chance


def logistic_fit(rows: Doubles, labels: Doubles, weights: Doubles, ridge: float) -> Doubles:
    """Weights (1 + d,), the intercept first, by damped Newton steps; `labels` lie in [0, 1]."""
    design = np.concatenate([np.ones((len(rows), 1)), rows], axis=1)
    penalty = np.full(design.shape[1], ridge)
    penalty[0] = _INTERCEPT_RIDGE
    found = np.zeros(design.shape[1])
    for _ in range(_NEWTON_STEPS):
        p = _sigmoid(design @ found)
        gradient = design.T @ (weights * (p - labels)) + penalty * found
        curvature = (design * (weights * p * (1 - p))[:, None]).T @ design + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        found = found - step * min(1.0, _LONGEST_STEP / (np.abs(step).max() + _TINY))
    return found


def _sigmoid(values: Doubles) -> Doubles:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))
