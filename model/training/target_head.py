"""What a head has learned, put into the θ that decides on the target.

θ = A⁻¹b knows of an arm only the rounds in which that arm was chosen, and in the end nearly all of those
paid: away from them, as on another domain, it says little. Where exactly one arm pays, the head that
learned with the encoder knows more: what it learns of one arm it learns of all, from random views. So the
target is decided by θ = A⁻¹(b + shift), where the shift replaces what rounds that taught the head say to
b by what the head says of them, as far as that is linear in the latents. A stays what it is: how wide
the bounds are depends on what was tried alone. Rewards that come later fold as ever.

The source is decided by A⁻¹b itself: what is learned there depends on what is tried there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import BanditConfig, Objective
from model.encoders.base import TINY, Encoder


def is_distilled(encoder: Encoder, config: BanditConfig) -> bool:
    """Whether that is asked for and can be had: from a head that learns of several arms at once."""
    is_head = encoder.is_learned and config.objective is Objective.HEAD
    is_exclusive = config.exclusive_rewards and config.model_count > 1
    return config.distil_head and is_head and is_exclusive


@dataclass(frozen=True, slots=True)
class HeadOutput:
    """What a head says of latents (n, d): the rewards it expects and the scores they rest on, (n, M).

    `is_linear`: but for an offset, the scores are linear in the latents, as those of one member are.
    """

    latents: Tensor
    expected: Tensor
    scores: Tensor
    is_linear: bool


class Distilled(nn.Module):
    """θ₀ (M, d), which comes closest to the head, and how many rounds of the log it was `taught` by."""

    theta: Tensor
    taught: Tensor

    def __init__(self, latent_size: int, model_count: int) -> None:
        super().__init__()
        self.register_buffer("theta", torch.zeros(model_count, latent_size, dtype=torch.float64))
        self.register_buffer("taught", torch.zeros((), dtype=torch.int64))

    def fit(self, groups: Sequence[HeadOutput], taught: int, ridge: float) -> None:
        """Come as close as can be to what a head says; each group of latents weighs the same."""
        is_linear = all(said.is_linear for said in groups)
        self.theta.copy_((_of_scores if is_linear else _of_rewards)(groups, ridge))
        self.taught.fill_(taught)

    def shift(
        self, latents: Tensor, models: Tensor, rewards: Tensor, seen: int, ridge: float
    ) -> Tensor:
        """γθ₀ + Σ (θ₀ᵀz − r)z over the rounds that taught the head, (M, d): with it A⁻¹b is θ₀ if all did.

        They are the newest of `seen` rounds, oldest first: latents (n, d), models and rewards (n,).
        """
        later = max(0, seen - int(self.taught))
        known = slice(0, max(0, len(rewards) - later))
        wide = latents[known].double()
        chosen = functional.one_hot(models[known], len(self.theta)).double()  # (n, M)
        said = (wide @ self.theta.T * chosen).sum(dim=1)
        return ridge * self.theta + (chosen * (said - rewards[known])[:, None]).T @ wide


def _of_rewards(groups: Sequence[HeadOutput], ridge: float) -> Tensor:
    """The θ₀ whose θ₀ᵀz is nearest to the rewards that the head expects."""
    return _regression([(said.latents, said.expected) for said in groups], ridge)


def _of_scores(groups: Sequence[HeadOutput], ridge: float) -> Tensor:
    """The θ₀ that chooses as the scores do, and expects of what it chooses what the head expects of it.

    Rewards bend where scores do not: a θ₀ that is nearest to rewards chooses worse than the head.
    """
    columns = [(said.latents, _centred_and_even(said)) for said in groups]
    *_, even = fitted = _regression(columns, ridge)
    slopes, level = fitted[:-1], even / (len(fitted) - 1)
    rise, lift = torch.zeros(2).to(fitted)
    for said in groups:
        wide = said.latents.double()
        highest, arms = (wide @ slopes.T).max(dim=1)
        expected = said.expected.gather(1, arms[:, None])[:, 0]
        rise += highest.mean()
        lift += (expected - wide @ level).mean()
    theta: Tensor = (lift / rise.clamp_min(TINY)).clamp_min(0.0) * slopes + level
    return theta


def _centred_and_even(said: HeadOutput) -> Tensor:
    """Scores with their mean at 0, then a column of ones, (n, M + 1)."""
    centred = said.scores - said.scores.mean(dim=1, keepdim=True)
    return functional.pad(centred, (0, 1), value=1.0)


def _regression(groups: Sequence[tuple[Tensor, Tensor]], ridge: float) -> Tensor:
    """Ridge regression of values (n, C) on latents (n, d), (C, d); each group weighs the same."""
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
