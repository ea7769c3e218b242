"""The UCB rule on latents that are already computed, refreshed after each reward.

A policy is built for serving thousands of requests; here it would be built anew for each one. This
keeps A⁻¹ of each arm and updates it by Sherman and Morrison's formula, for as long as the encoder
stays the same.
"""

import torch
from torch import Tensor

from model.bandit.linucb import LinUCB
from model.rounds import Domain, Doubles, Floats, Integers

LARGE = 512  # latents from here on pay for the way to a GPU


class QuickUCB:
    """A domain's θ and A⁻¹ of disjoint arms, started from statistics and then moved one round at a time."""

    def __init__(
        self,
        statistics: LinUCB,
        alpha: float,
        device: torch.device | str = "cpu",
        domain: Domain = Domain.SOURCE,
    ) -> None:
        self.alpha = alpha
        model_count, size = statistics.b.shape
        self.device = torch.device(device) if size > LARGE else torch.device("cpu")
        self.inverse: Tensor  # (K, d, d)
        self.theta: Tensor  # (K, d)
        if statistics.counts.any():
            factors = statistics.factors()
            roots = torch.from_numpy(factors.inverse_root).to(self.device)
            self.inverse = roots.mT @ roots
            theta = torch.from_numpy(factors.theta_of(domain))
            self.theta = theta.to(self.device, copy=True)
        else:
            unit = torch.eye(size, dtype=torch.float64, device=self.device) / statistics.ridge
            self.inverse = unit.repeat(model_count, 1, 1)
            self.theta = unit.new_zeros(model_count, size)

    def prepared(self, latents: Floats) -> Tensor:
        """Latents (n, d) as `arm` and `fold` read their rows."""
        return torch.from_numpy(latents).to(self.device, torch.float64)

    def arm(self, z: Tensor) -> int:
        """The arm of the highest upper confidence bound; the first one among equals."""
        widths = ((self.inverse @ z) @ z).clamp_min(0.0).sqrt()
        return int((self.theta @ z + self.alpha * widths).argmax())

    def fold(self, z: Tensor, arm: int, reward: float) -> None:
        """A += zzᵀ, b += rz of one arm."""
        spread = self.inverse[arm] @ z
        gain = spread / (1.0 + spread @ z)
        self.inverse[arm].addr_(gain, spread, alpha=-1)
        self.theta[arm] += (reward - self.theta[arm] @ z) * gain


class Unfolded(LinUCB):
    """Statistics that fold nothing: for very long latents, whose A and b are summed up afterwards."""

    def fold(self, latents: Floats, models: Integers, rewards: Doubles) -> None:
        """Left to a rebuild from the remembered rounds."""
