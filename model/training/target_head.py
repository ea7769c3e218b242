"""The θ of the target, taken from the reward head (`distil_head`).

For each arm, θ = A⁻¹b learns only from the rounds that chose it, and late in training nearly all of those
paid. So it extrapolates poorly to another domain. If exactly one arm pays, the head learns about all arms
from every round. So target decisions use θ = A⁻¹(b + shift). The shift replaces the rewards of the rounds
that trained the head by the head's predictions, as far as these are linear in the latents. A and the widths
stay the same, and later rewards fold as usual.

Source decisions use A⁻¹b, because exploration there determines what is learned.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import BanditConfig, Objective
from model.encoders.base import TINY, Encoder


def is_distilled(encoder: Encoder, config: BanditConfig) -> bool:
    """Whether distillation is configured and possible: the head must learn several arms at once."""
    is_head = encoder.is_learned and config.objective is Objective.HEAD
    is_exclusive = config.exclusive_rewards and config.model_count > 1
    return config.distil_head and is_head and is_exclusive


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """A head's expected rewards and scores (n, M) of latents (n, d).

    `is_linear`: the scores are affine in the latents; those of an ensemble are not.
    """

    latents: Tensor
    expected: Tensor
    scores: Tensor
    is_linear: bool


class Distilled(nn.Module):
    """θ₀ (M, d), the linear fit to the head, and `taught`, the number of rounds that trained the head."""

    theta: Tensor
    taught: Tensor

    def __init__(self, latent_size: int, model_count: int) -> None:
        super().__init__()
        self.register_buffer("theta", torch.zeros(model_count, latent_size, dtype=torch.float64))
        self.register_buffer("taught", torch.zeros((), dtype=torch.int64))

    def fit(self, groups: Sequence[HeadOutput], taught: int, ridge: float) -> None:
        """Fit θ₀ to a head's outputs; each group of latents has the same weight."""
        is_linear = all(output.is_linear for output in groups)
        self.theta.copy_((_of_scores if is_linear else _of_rewards)(groups, ridge))
        self.taught.fill_(taught)

    def shift(
        self, latents: Tensor, models: Tensor, rewards: Tensor, seen: int, ridge: float
    ) -> Tensor:
        """γθ₀ + Σ (θ₀ᵀz − r)z over the rounds that trained the head, (M, d); A⁻¹(b + shift) = θ₀ if all did.

        Latents (n, d), models and rewards (n,) are the newest of `seen` rounds, oldest first.
        """
        later = max(0, seen - int(self.taught))
        known = slice(0, max(0, len(rewards) - later))
        wide = latents[known].double()
        chosen = functional.one_hot(models[known], len(self.theta)).double()  # (n, M)
        predicted = (wide @ self.theta.T * chosen).sum(dim=1)
        return ridge * self.theta + (chosen * (predicted - rewards[known])[:, None]).T @ wide


def _of_rewards(groups: Sequence[HeadOutput], ridge: float) -> Tensor:
    """The θ₀ whose θ₀ᵀz is nearest to the head's expected rewards."""
    return _regression([(output.latents, output.expected) for output in groups], ridge)


def _of_scores(groups: Sequence[HeadOutput], ridge: float) -> Tensor:
    """The θ₀ that ranks arms like the scores, scaled so that its best arms get the head's expected rewards.

    Scores are linear and rewards are not: a θ₀ that is nearest to rewards chooses worse than the head.
    """
    columns = [(output.latents, _centred_and_even(output)) for output in groups]
    *_, even = fitted = _regression(columns, ridge)
    slopes, level = fitted[:-1], even / (len(fitted) - 1)
    rise, lift = torch.zeros(2).to(fitted)
    for output in groups:
        wide = output.latents.double()
        highest, arms = (wide @ slopes.T).max(dim=1)
        expected = output.expected.gather(1, arms[:, None])[:, 0]
        rise += highest.mean()
        lift += (expected - wide @ level).mean()
    theta: Tensor = (lift / rise.clamp_min(TINY)).clamp_min(0.0) * slopes + level
    return theta


def _centred_and_even(output: HeadOutput) -> Tensor:
    """Scores with their mean at 0, then a column of ones, (n, M + 1)."""
    centred = output.scores - output.scores.mean(dim=1, keepdim=True)
    return functional.pad(centred, (0, 1), value=1.0)


def _regression(groups: Sequence[tuple[Tensor, Tensor]], ridge: float) -> Tensor:
    """Ridge regression of values (n, C) on latents (n, d), (C, d); each group has the same weight."""
    total = sum(len(latents) for latents, _ in groups)
    size = groups[0][0].shape[1]
    gram = torch.eye(size, dtype=torch.float64, device=groups[0][0].device) * (ridge / total)
    b = gram.new_zeros(groups[0][1].shape[1], size)
    for latents, values in groups:
        wide = latents.double()
        gram += wide.T @ wide / len(wide)
        b += values.double().T @ wide / len(wide)
    coefficients: Tensor = torch.linalg.solve(gram, b.T).T
    return coefficients
