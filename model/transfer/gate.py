"""The gate: a new encoder serves only if it is finite, not collapsed and no worse on the source."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.bandit.confidence import LEAST_PROPENSITY, known_propensities
from model.config import BanditConfig
from model.memory import RoundBatch
from model.rounds import Doubles


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an encoder may serve, the reasons if not, and the figures (None: not known)."""

    is_accepted: bool
    reasons: tuple[str, ...]
    effective_rank: float | None = None
    reward: float | None = None
    reward_before: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "reasons": list(self.reasons)}


def refused(reason: str) -> Verdict:
    """A refusal before anything could be measured."""
    return Verdict(False, (reason,))


def judge(
    held_out: RoundBatch,
    candidate: tuple[Tensor, Doubles],
    incumbent: tuple[Tensor, Doubles],
    rank: float,
    config: BanditConfig,
) -> Verdict:
    """Compare two encoders on held-out source rounds; each is given as (latents (n, d), θ (M, d)).

    The reward is that of the greedy policy on each encoder. It may fall by `gate_margin` plus
    1/(2√n), a bound on the standard error of a mean in [0, 1]. `rank` is the effective rank of the
    candidate's latents.
    """
    reasons = []
    if rank < config.gate_rank:
        reasons.append(f"latents collapsed: effective rank {rank:.3f} below {config.gate_rank:g}")
    if not len(held_out):
        return Verdict(not reasons, tuple(reasons), rank)
    if (held_out.rewards < 0).any() or (held_out.rewards > 1).any():
        return Verdict(False, (*reasons, "held-out rewards outside [0, 1]"), rank)
    after, before = held_out_rewards(held_out, candidate, incumbent, config.is_joint)
    allowed = config.gate_margin + 0.5 / len(held_out) ** 0.5
    if not after >= before - allowed:
        reasons.append(
            f"held-out source reward fell from {before:.3f} to {after:.3f}, "
            f"more than {allowed:.3f} over {len(held_out)} rounds"
        )
    return Verdict(not reasons, tuple(reasons), rank, after, before)


def held_out_rewards(
    held_out: RoundBatch,
    candidate: tuple[Tensor, Doubles],
    incumbent: tuple[Tensor, Doubles],
    is_joint: bool,
) -> tuple[float, float]:
    """Estimated reward of the greedy policies on candidate and incumbent.

    Disjoint arms: doubly robust, with the mean of both encoders' predictions as reward model. Joint:
    only the chosen arm's context is known, so the value is 1 − mean |r − prediction| of each.
    Both encoders are weighted alike, so an unknown propensity needs only a common stand-in: how often
    the arm was chosen in the held-out rounds without one.
    """
    after, before = (
        latents.double().cpu().numpy() @ theta.T for latents, theta in (candidate, incumbent)
    )
    if is_joint:
        gaps = [np.abs(held_out.rewards - predicted[:, 0]).mean() for predicted in (after, before)]
        return float(1 - gaps[0]), float(1 - gaps[1])
    model = (after.clip(0, 1) + before.clip(0, 1)) / 2  # (n, K)
    return tuple(
        _doubly_robust(held_out, model, predicted.argmax(1)) for predicted in (after, before)
    )  # type: ignore[return-value]


def _doubly_robust(held_out: RoundBatch, model: Doubles, arms: np.ndarray[Any, Any]) -> float:
    rows = np.arange(len(held_out))
    propensities = known_propensities(held_out.propensities, held_out.arms).clip(LEAST_PROPENSITY)
    weights = (arms == held_out.arms) / propensities
    correction = weights * (held_out.rewards - model[rows, held_out.arms])
    return float((model[rows, arms] + correction).mean())


def is_finite(*tensors: Tensor) -> bool:
    """Whether all values are finite."""
    numbers = [t for t in tensors if t.is_floating_point() and t.numel()]
    # The largest magnitudes of all tensors in one call: hundreds of small calls cost a GPU milliseconds.
    return not numbers or bool(torch.stack(torch._foreach_norm(numbers, math.inf)).isfinite().all())
