"""The UCB rule on latents that are already computed, refreshed after each reward.

A policy is built for serving thousands of requests; here it would be built anew for each one. This
keeps A⁻¹ of each arm and updates it by Sherman and Morrison's formula, for one episode at a time.
"""

import numpy as np

from model.linucb import LinUCB
from model.rounds import Doubles, Floats


class QuickUCB:
    """θ and A⁻¹ of disjoint arms, started from statistics and then moved one round at a time."""

    def __init__(self, statistics: LinUCB, alpha: float) -> None:
        roots = statistics.factors().inverse_root
        self.alpha = alpha
        self.inverse: Doubles = roots.mT @ roots  # (K, d, d)
        self.theta: Doubles = statistics.factors().theta.copy()  # (K, d)

    def arm(self, latent: Floats) -> int:
        """The arm of the highest upper confidence bound; the first one among equals."""
        z = latent.astype(np.float64)
        spread = self.inverse @ z  # (K, d)
        widths = np.sqrt(np.maximum(spread @ z, 0.0))
        return int(np.argmax(self.theta @ z + self.alpha * widths))

    def fold(self, latent: Floats, arm: int, reward: float) -> None:
        """A += zzᵀ, b += rz of one arm."""
        z = latent.astype(np.float64)
        spread = self.inverse[arm] @ z
        gain = spread / (1.0 + spread @ z)
        self.inverse[arm] -= np.outer(gain, spread)
        self.theta[arm] += (reward - self.theta[arm] @ z) * gain
