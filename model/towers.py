"""A committee of encoders for vectors: T small towers side by side, their latents joined.

How strongly to align (λ) cannot be tuned without target rewards, and no single strength is right
everywhere. The towers differ in it, 0 included, and in whether a domain is standardised by its own
statistics or by those of both; the joined latents let the linear model average over all of them.
"""

import math

import torch
from torch import Tensor, nn


class TowerLinear(nn.Module):
    """T linear layers side by side: (n, T, in) → (n, T, out), each started like nn.Linear."""

    def __init__(self, towers: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(towers, inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(towers, 1, outputs).uniform_(-bound, bound))

    def forward(self, values: Tensor) -> Tensor:
        return torch.baddbmm(self.bias, values.transpose(0, 1), self.weight).transpose(0, 1)


def by_tower(latents: Tensor, towers: int) -> Tensor:
    """Joined latents (n, T·d) as (n, T, d), each of norm 1 again."""
    parts: Tensor = latents.unflatten(1, (towers, -1))
    return parts * math.sqrt(towers)


def tower_shares(towers: int) -> Tensor:
    """How far each tower takes part in the alignment: not for the first half, then rising in pairs to 1."""
    pairs = torch.arange(towers - 1, -1, -1) // 2
    steps = max(1, (towers + 2) // 4)
    return (1 - pairs / steps).clamp_min(0.0)
