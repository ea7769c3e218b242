"""An ensemble of small encoders (T members) side by side, their latents joined.

The alignment strength λ cannot be tuned without target rewards, and no value suits all data. So the
members use different λ, 0 included, and different scales: one for both domains, or one for each. The
linear model on the joined latents averages over all of them.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from model.encoders.base import TINY

_LEAST_WIDTH = 4  # latents of a member: fewer cannot separate the arms


class MemberLinear(nn.Module):
    """T linear layers side by side: (n, T, in) → (n, T, out), each initialised like nn.Linear."""

    def __init__(self, members: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(members, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(members, 1, outputs).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, values.transpose(0, 1), self.weight).transpose(0, 1)


def fitting_count(most: int, latent_size: int) -> int:
    """The largest even member count up to `most` that divides `latent_size` into wide enough parts, or 1."""
    pairs = range(2, min(most, latent_size // _LEAST_WIDTH) + 1, 2)
    return max((count for count in pairs if latent_size % count == 0), default=1)


def by_member(latents: Tensor, members: int) -> Tensor:
    """Joined latents (n, T·d) as (n, T, d), each part scaled to norm 1 again."""
    parts: Tensor = latents.unflatten(1, (members, -1))
    return parts if members == 1 else functional.normalize(parts, dim=2, eps=TINY)


def member_norms(latents: Tensor, members: int) -> Tensor:
    """The weight of each member in joined latents (n, T·d), (n, T)."""
    norms: Tensor = latents.unflatten(1, (members, -1)).norm(dim=2)
    return norms


def alignment_factors(members: int) -> Tensor:
    """How far each member is aligned, (T,): 0 in the first half, then rising in pairs to 1."""
    pairs = torch.arange(members - 1, -1, -1) // 2
    steps = max(1, (members + 2) // 4)
    return (1 - pairs / steps).clamp_min(0.0)


def aligned_count(members: int) -> int:
    """How many members are aligned; they are the last ones."""
    return int(alignment_factors(members).count_nonzero())


def member_weights(members: int, measured: float) -> Tensor:
    """The weights of the members in the joined latents, (T,), given the fraction of measured features.

    Alignment corrects how a domain distorts measured features; binary features need none. The aligned
    half gets weight 0 if all features are binary, and the same as the other half if all are measured.
    """
    aligned = aligned_count(members)
    if aligned == members:
        return torch.ones(members)
    weight = measured / 2  # of each aligned member
    weights = torch.tensor([1.0 - weight] * (members - aligned) + [weight] * aligned)
    return functional.normalize(weights, dim=0) * math.sqrt(members)
