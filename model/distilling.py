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

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import BanditConfig, Objective
from model.encoder import Encoder


def is_distilled(encoder: Encoder, config: BanditConfig) -> bool:
    """Whether that is asked for and can be had: from a head that learns of several arms at once."""
    is_head = encoder.is_learned and config.objective is Objective.HEAD
    is_exclusive = config.exclusive_rewards and config.model_count > 1
    return config.distil_head and is_head and is_exclusive


class Distilled(nn.Module):
    """θ₀ (M, d), which comes closest to the head, and how many rounds of the log it was `taught` by."""

    theta: Tensor
    taught: Tensor

    def __init__(self, latent_size: int, model_count: int) -> None:
        super().__init__()
        self.register_buffer("theta", torch.zeros(model_count, latent_size, dtype=torch.float64))
        self.register_buffer("taught", torch.zeros((), dtype=torch.int64))

    def fit(self, groups: Sequence[tuple[Tensor, Tensor]], taught: int, ridge: float) -> None:
        """Ridge regression of predictions (n, M) on latents (n, d); each group weighs the same."""
        total = sum(len(latents) for latents, _ in groups)
        gram = torch.eye(self.theta.shape[1]).to(self.theta) * (ridge / total)
        b = torch.zeros_like(self.theta)
        for latents, predicted in groups:
            wide = latents.double()
            gram += wide.T @ wide / len(wide)
            b += predicted.double().T @ wide / len(wide)
        self.theta.copy_(torch.linalg.solve(gram, b.T).T)
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
