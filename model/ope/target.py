"""The value of a policy in the target domain, from source rewards alone.

Assumes that the reward depends on (latent, arm) in the same way in both domains and that the source
covers every latent of the target. Then with ρ the density ratio and w = π/p the value is

    E_T[q̂_π] + E_S[ρ w (r − q̂)],   q̂ by ridge regression on the other half of the source,

and if the source does not cover the target, the value is not identifiable.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from model.ope.density_ratio import discriminator_ratio, logistic_ratio
from model.ope.intervals import Interval
from model.ope.valuation import LEAST_EFFECTIVE
from model.randomness import generator
from model.rounds import Doubles, Integers

_LEAST_GAP = 0.05  # two estimates closer than this agree, however narrow the interval
SEPARABLE_ACCURACY = 0.95  # at this discriminator accuracy the domains hardly overlap
_RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class SourceRounds:
    """Logged source rounds under one policy: latents (n, d), π (n, K), everything else (n,)."""

    latents: Doubles
    policy: Doubles
    arms: Integers
    rewards: Doubles
    propensities: Doubles


@dataclass(frozen=True, slots=True)
class TargetValue:
    """The estimate, or the reason why there is none; `checked` uses the other density ratio."""

    is_identifiable: bool
    reason: str | None
    value: float | None
    interval: Interval | None
    checked: float | None
    effective_rounds: float
    max_weight: float
    domain_accuracy: float
    rounds: int
    target_contexts: int

    def as_dict(self) -> dict[str, Any]:
        found = asdict(self)
        found["interval"] = None if self.interval is None else list(self.interval)
        return found


def target_value(
    source: SourceRounds,
    target_latents: Doubles,
    target_policy: Doubles,
    seed: int,
    confidence: float = 0.95,
) -> TargetValue:
    """Value a policy on target contexts: their latents (m, d) and the policy's choices (m, K)."""
    ratio, accuracy = discriminator_ratio(source.latents, target_latents, seed)
    other = logistic_ratio(source.latents, target_latents, seed)
    logged = source.policy[np.arange(len(source.arms)), source.arms] / source.propensities
    residual, direct = _cross_fitted(source, target_latents, target_policy)
    weights = ratio * logged
    ends = _resampled(weights, residual, direct, seed, confidence)
    value = _robust(weights, residual, direct)
    checked = _robust(other * logged, residual, direct)
    effective = _effective(weights)
    reason = _why_not_identifiable(effective, accuracy, (value, checked), ends)
    return TargetValue(
        is_identifiable=reason is None,
        reason=reason,
        value=value if reason is None else None,
        interval=ends if reason is None else None,
        checked=checked if reason is None else None,
        effective_rounds=effective,
        max_weight=float(weights.max(initial=0.0)),
        domain_accuracy=accuracy,
        rounds=len(source.arms),
        target_contexts=len(target_latents),
    )


def _why_not_identifiable(
    effective: float, accuracy: float, values: tuple[float, float], ends: Interval
) -> str | None:
    if accuracy > SEPARABLE_ACCURACY:
        return f"a classifier separates the domains in {accuracy:.0%} of cases: they do not overlap"
    if effective < LEAST_EFFECTIVE:
        return (
            f"the effective sample size {effective:.1f} is below {LEAST_EFFECTIVE:.0f}:"
            " the source has too few rounds near the target's contexts"
        )
    if abs(values[0] - values[1]) > max(_LEAST_GAP, ends.high - ends.low):
        return "two estimates of the density ratio disagree by more than the interval's width"
    return None


def _cross_fitted(
    source: SourceRounds, target_latents: Doubles, target_policy: Doubles
) -> tuple[Doubles, Doubles]:
    """r − q̂ of the source rounds (n,) and q̂_π of the target contexts (m,)."""
    residual = np.zeros(len(source.arms))
    direct = np.zeros(len(target_latents))
    for fold in (0, 1):
        theta = _ridge_heads(source, fold)
        judged = slice(1 - fold, None, 2)
        predicted = _predicted(source.latents[judged], theta)
        arms = source.arms[judged]
        residual[judged] = source.rewards[judged] - predicted[np.arange(len(arms)), arms]
        direct += 0.5 * (target_policy * _predicted(target_latents, theta)).sum(axis=1)
    return residual, direct


def _ridge_heads(source: SourceRounds, fold: int) -> Doubles:
    """θ of every arm (K, d + 1) on one half of the rounds."""
    features = _with_constant(source.latents[fold::2])
    arms, rewards = source.arms[fold::2], source.rewards[fold::2]
    size = features.shape[1]
    theta = np.zeros((source.policy.shape[1], size))
    for arm in np.unique(arms):
        own = features[arms == arm]
        theta[arm] = np.linalg.solve(own.T @ own + np.eye(size), own.T @ rewards[arms == arm])
    return theta


def _predicted(latents: Doubles, theta: Doubles) -> Doubles:
    return np.asarray((_with_constant(latents) @ theta.T).clip(0.0, 1.0))


def _with_constant(latents: Doubles) -> Doubles:
    return np.concatenate([latents, np.ones((len(latents), 1))], axis=1)


def _robust(weights: Doubles, residual: Doubles, direct: Doubles) -> float:
    total = weights.sum()
    correction = (weights * residual).sum() / total if total > 0 else 0.0
    return float(direct.mean() + correction)


def _effective(weights: Doubles) -> float:
    squares = (weights**2).sum()
    return float(weights.sum() ** 2 / squares) if squares > 0 else 0.0


def _resampled(
    weights: Doubles, residual: Doubles, direct: Doubles, seed: int, confidence: float
) -> Interval:
    """Percentiles over resampled rounds and contexts; the ratio is treated as known."""
    rng = generator(seed, "target bootstrap")
    found = []
    for _ in range(_RESAMPLES):
        rows = rng.integers(len(weights), size=len(weights))
        seen = rng.integers(len(direct), size=len(direct))
        found.append(_robust(weights[rows], residual[rows], direct[seen]))
    tail = 0.5 * (1.0 - confidence)
    low, high = np.quantile(found, [tail, 1.0 - tail])
    return Interval(float(low), float(high))
