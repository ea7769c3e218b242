"""Transfer confidence: how far a target decision is supported by aligned source data.

    confidence = overlap · p(right | decision score) · √(support · in_source) · (1 − γ·width²)

- p: logistic in the margin between best and second arm, fitted on held-out source rounds;
- support: conformal, the share of held-out source latents that lie as far from the source
  prototypes as this one, over TAIL, at most 1;
- in_source: twice the domain classifier's probability of the source, at most 1;
- width: ‖L⁻¹φ‖ of the best arm, the Mahalanobis distance to what the arm was learned from;
- overlap: 1 if a classifier cannot distinguish the domains, 0 if it always can.

On the source it is calibrated. On the target it ranks decisions; it is not a probability.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from model.config import BanditConfig
from model.rounds import Booleans, Doubles, Floats, Integers

PROTOTYPES = 32  # of each domain
LEAST_ROUNDS = 32  # minimum of held-out source rounds and of target contexts
MOST_LATENTS = 512  # maximum of latents used of each domain
QUANTILES = 33  # of the held-out similarities that are kept
TAIL = 0.1  # contexts among the farthest tenth of the source's are less supported
SLACK = 2.5  # overlap = SLACK·(1 − accuracy): accuracies up to 0.6 are noise
_SHARPNESS = 8.0  # of the radial basis functions: they fade at a cosine of about 0.9
_KMEANS_ROUNDS = 8
_RIDGE = 1.0  # on the domain classifier, which has more features than it needs
_CALIBRATION_RIDGE = 0.01  # on the slope of p(right | margin): hardly any
_INTERCEPT_RIDGE = 1e-3  # keeps Newton's system solvable
_NEWTON_STEPS = 10
_LONGEST_STEP = 5.0  # Newton's steps overshoot where classes are separable
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Held-out source rounds under one encoder: latents (n, d), predictions (n, M), arms and rewards."""

    latents: Doubles
    predicted: Doubles
    arms: Integers
    rewards: Doubles


@dataclass(frozen=True, slots=True)
class Confidence:
    """A fitted model that rates decisions on latents of one encoder.

    `prototypes` (P, d) are the source's, then the target's; `domain` (P + 1,) and `decision` (2,)
    are logistic weights, the intercept first; `distances` are quantiles of held-out source
    contexts' similarity to the source prototypes; `overlap` is for the domains as a whole.
    """

    prototypes: Doubles
    source_count: int
    domain: Doubles
    decision: Doubles
    distances: Doubles
    overlap: float

    @classmethod
    def fitted(
        cls, fit: Doubles, held_out: HeldOut, target: Doubles, config: BanditConfig
    ) -> Self | None:
        """From source latents that trained (n, d), held-out rounds, and target latents (m, d)."""
        if min(len(held_out.arms), len(target), len(fit)) < LEAST_ROUNDS:
            return None
        source, target = fit[-MOST_LATENTS:], target[-MOST_LATENTS:]
        ours, theirs = (prototypes_of(latents, PROTOTYPES) for latents in (source, target))
        both = np.concatenate([ours, theirs])
        nearest = (held_out.latents @ ours.T).max(axis=1)
        domain, accuracy = _domain_classifier(
            _rbf_features(source, both), _rbf_features(target, both)
        )
        return cls(
            prototypes=both,
            source_count=len(ours),
            domain=domain,
            decision=_calibrated(held_out, config),
            distances=np.quantile(nearest, np.linspace(0, 1, QUANTILES)),
            overlap=min(1.0, SLACK * (1.0 - accuracy)),
        )

    def arrays(self) -> dict[str, Any]:
        """All of it as arrays by name."""
        return {name: np.asarray(value) for name, value in asdict(self).items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any], latent_size: int) -> Self:
        """The inverse of `arrays`; ValueError for arrays that it cannot have written."""
        count = len(arrays["prototypes"])
        shapes = {
            "prototypes": (count, latent_size),
            "source_count": (),
            "domain": (count + 1,),
            "decision": (2,),
            "distances": (QUANTILES,),
            "overlap": (),
        }
        if {name: array.shape for name, array in arrays.items()} != shapes:
            raise ValueError("wrong content or shape")
        kinds = {name: np.int64 if name == "source_count" else np.float64 for name in shapes}
        if any(arrays[name].dtype != kind for name, kind in kinds.items()):
            raise ValueError("wrong type")
        if not 1 <= arrays["source_count"] < count or not 0 <= arrays["overlap"] <= 1:
            raise ValueError("out of range")
        numbers = {"source_count": int(arrays["source_count"]), "overlap": float(arrays["overlap"])}
        return cls(**{**arrays, **numbers})

    def rate(self, latents: Floats, scores: Doubles, widths: Doubles, ridge: float) -> Doubles:
        """Confidences (n,) of decisions.

        `latents` (n, d) are those of the chosen arms, `scores` (n,) their `decision_scores`.
        """
        similarity = latents @ self.prototypes.T.astype(latents.dtype)
        nearest = similarity[:, : self.source_count].max(axis=1)
        ranks = np.interp(nearest, self.distances, np.linspace(0, 1, QUANTILES))
        support = np.minimum(1.0, (ranks + 1.0 / QUANTILES) / TAIL)
        features = np.exp(_SHARPNESS * (similarity.astype(np.float64) - 1.0))
        in_source = np.minimum(1.0, 2.0 * _sigmoid(-(self.domain[0] + features @ self.domain[1:])))
        right = _sigmoid(self.decision[0] + self.decision[1] * scores)
        known = np.clip(1.0 - ridge * np.square(widths), 0.0, 1.0)
        return np.asarray(self.overlap * right * np.sqrt(support * in_source) * known)


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


def prototypes_of(latents: Doubles, count: int, rounds: int = _KMEANS_ROUNDS) -> Doubles:
    """At most `count` unit vectors that represent the latents: farthest first, then k-means."""
    chosen = [latents[0]]
    similarity = latents @ latents[0]
    for _ in range(min(count, len(latents)) - 1):
        farthest = latents[int(similarity.argmin())]
        chosen.append(farthest)
        similarity = np.maximum(similarity, latents @ farthest)
    centers = np.array(chosen)
    for _ in range(rounds):
        nearest = (latents @ centers.T).argmax(axis=1)
        sums = np.eye(len(centers))[nearest].T @ latents
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        centers = np.where(norms > 0, sums / np.maximum(norms, _TINY), centers)
    return centers


def _rbf_features(latents: Doubles, prototypes: Doubles) -> Doubles:
    return np.asarray(np.exp(_SHARPNESS * (latents @ prototypes.T - 1.0)))


def _domain_classifier(source: Doubles, target: Doubles) -> tuple[Doubles, float]:
    """Balanced logistic weights (target = 1) on all rows, and the two-fold cross-validated accuracy."""
    accuracies = []
    for own, other in ((0, 1), (1, 0)):
        weights = _balanced_fit(source[own::2], target[own::2])
        wrong_source = (_logits(source[other::2], weights) > 0).mean()
        wrong_target = (_logits(target[other::2], weights) <= 0).mean()
        accuracies.append(1.0 - (wrong_source + wrong_target) / 2)
    return _balanced_fit(source, target), float(np.mean(accuracies))


def _balanced_fit(source: Doubles, target: Doubles) -> Doubles:
    rows = np.concatenate([source, target])
    labels = np.repeat([0.0, 1.0], [len(source), len(target)])
    weights = np.repeat([0.5 / len(source), 0.5 / len(target)], [len(source), len(target)])
    return logistic_fit(rows, labels, weights * len(rows), _RIDGE)


def _calibrated(held_out: HeldOut, config: BanditConfig) -> Doubles:
    """Intercept and slope of p(reward | decision score) over rounds whose outcome is known."""
    scores = decision_scores(held_out.predicted, config.is_joint)
    outcomes = held_out.rewards
    known = np.ones(len(outcomes), dtype=np.bool_)
    if not config.is_joint:
        is_greedy = held_out.predicted.argmax(axis=1) == held_out.arms
        # Rewards are exclusive: if another arm paid 1, the best-rated arm would have paid 0.
        is_wrong = np.bool_(config.exclusive_rewards) & ~is_greedy & (outcomes == 1.0)
        known, outcomes = is_greedy | is_wrong, np.where(is_greedy, outcomes, 0.0)
    if known.sum() < LEAST_ROUNDS // 2:
        return np.zeros(2)  # p = ½
    # Platt's smoothed targets: a few rounds never give certainty.
    count = known.sum()
    smooth = outcomes[known] * (1 - 2 / (count + 2)) + 1 / (count + 2)
    fitted = logistic_fit(scores[known][:, None], smooth, np.ones(count), _CALIBRATION_RIDGE)
    if fitted[1] >= 0:
        return fitted
    level = float(smooth.mean())  # a negative slope is noise
    return np.array([np.log(level / (1 - level)), 0.0])


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


def _logits(rows: Doubles, weights: Doubles) -> Doubles:
    return np.asarray(weights[0] + rows @ weights[1:])


def _sigmoid(values: Doubles) -> Doubles:
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * values)))
