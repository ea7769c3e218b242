"""A committee of encoders for vectors: T small towers side by side, their latents joined.

How strongly to align (λ) cannot be tuned without target rewards, and no single strength is right
everywhere. The towers differ in it, 0 included, and in whether a domain is standardised by its own
statistics or by those of both; the joined latents let the linear model average over all of them.
The aligned half weighs less the more features only say yes or no: a domain may distort what is
measured, and alignment undoes that, but more yeses are other subjects, who need other arms.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.encoders.base import TINY

_LEAST_WIDTH = 4  # latents of a tower: with fewer it could not tell arms apart


class TowerLinear(nn.Module):
    """T linear layers side by side: (n, T, in) → (n, T, out), each started like nn.Linear."""

    def __init__(self, towers: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(towers, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(towers, 1, outputs).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, values.transpose(0, 1), self.weight).transpose(0, 1)


def fitting_count(most: int, latent_size: int) -> int:
    """One, or the most in pairs up to `most` that share the latents evenly and are not too narrow."""
    pairs = range(2, min(most, latent_size // _LEAST_WIDTH) + 1, 2)
    return max((count for count in pairs if latent_size % count == 0), default=1)


def by_tower(latents: Tensor, towers: int) -> Tensor:
    """Joined latents (n, T·d) as (n, T, d), each of norm 1 again, whatever it weighs."""
    parts: Tensor = latents.unflatten(1, (towers, -1))
    return parts if towers == 1 else functional.normalize(parts, dim=2, eps=TINY)


def tower_norms(latents: Tensor, towers: int) -> Tensor:
    """What each tower weighs in joined latents (n, T·d), (n, T)."""
    norms: Tensor = latents.unflatten(1, (towers, -1)).norm(dim=2)
    return norms


def tower_shares(towers: int) -> Tensor:
    """How far each tower takes part in the alignment: not for the first half, then rising in pairs to 1."""
    pairs = torch.arange(towers - 1, -1, -1) // 2
    steps = max(1, (towers + 2) // 4)
    return (1 - pairs / steps).clamp_min(0.0)


def aligned_count(towers: int) -> int:
    """How many towers take part in the alignment; they are the last ones."""
    return int(tower_shares(towers).count_nonzero())


def member_weights(members: int, measured: float) -> Tensor:
    """What each member weighs in the joined latents, (T,): the aligned ones less the fewer features are measured.

    `measured`: the share of features that are more than a yes or no. With 1 all weigh the same.
    """
    aligned = aligned_count(members)
    if aligned == members:
        return torch.ones(members)
    share = measured / 2
    weights = torch.tensor([1.0 - share] * (members - aligned) + [share] * aligned)
    return functional.normalize(weights, dim=0) * math.sqrt(members)
