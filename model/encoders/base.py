"""The encoder φ: maps contexts of a domain to latents of norm 1.

For serving, a trained encoder is frozen into a plain function of arrays: numpy on the CPU, where it
is fastest for small batches, and torch on a GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from model.encoders.arrays import TINY as TINY, Array
from model.rounds import Domain, Floats

# From contexts (n, …) to latents (n, d).
Frozen = Callable[[Array], Array]


class Encoder(nn.Module):
    """Maps contexts (n, *shape) of a domain to latents (n, latent_size) of norm 1."""

    latent_size: int
    # Whether a frozen forward on the CPU rounds a row independently of the other rows.
    is_rowwise: bool = False
    members: int = 1  # ensemble members: equal parts of the latents, each trained independently

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        """Latents with gradients, batch statistics in training mode."""
        raise NotImplementedError

    def forward_both(self, source: Tensor, target: Tensor) -> Tensor:
        """`forward` of source contexts, then of target contexts, joined; cheaper in some encoders."""
        return torch.cat([self(source, Domain.SOURCE), self(target, Domain.TARGET)])

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        """Fit the parts that no gradient learns to contexts of both domains (either may be empty).

        `rewarded`: the contexts of the rounds that the encoder will be trained on.
        """

    def recalibrate(self, source: Tensor, target: Tensor) -> None:
        """After training, take statistics from contexts without augmentation (either may be empty)."""

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        """The forward function of one domain on one device, in evaluation mode."""
        raise NotImplementedError

    @property
    def is_learned(self) -> bool:
        """Whether the encoder has parameters."""
        return any(True for _ in self.parameters())


@dataclass(frozen=True, slots=True)
class FrozenEncoder:
    """An encoder as plain functions of arrays on one device, one for each domain."""

    latent_size: int
    device: torch.device
    forwards: dict[Domain, Frozen]
    is_rowwise: bool = False

    @classmethod
    def of(cls, encoder: Encoder, device: torch.device) -> Self:
        """Freeze the encoder's present values."""
        forwards = {domain: encoder.frozen(domain, device) for domain in Domain}
        is_rowwise = encoder.is_rowwise and device.type == "cpu"
        return cls(encoder.latent_size, device, forwards, is_rowwise)

    def one_by_one(self, contexts: Floats, domain: Domain) -> Floats:
        """Latents (n, d) of host contexts with the same bits as one call for each row.

        Products over batches of different sizes round differently, and folding must not depend on how
        the log was cut into batches.
        """
        if not len(contexts):
            return np.zeros((0, self.latent_size), dtype=np.float32)
        if self.is_rowwise:
            return self.on_host(contexts, domain)
        rows = [self.on_host(contexts[row : row + 1], domain) for row in range(len(contexts))]
        return np.concatenate(rows)

    def on_host(self, contexts: Floats, domain: Domain) -> Floats:
        """Latents (n, d) of host contexts, back on the host."""
        if self.device.type == "cpu":
            return np.asarray(self.forwards[domain](contexts))
        with torch.inference_mode():
            moved = torch.from_numpy(np.ascontiguousarray(contexts)).to(self.device)
            return np.asarray(self.forwards[domain](moved).cpu())


def domain_row(domain: Domain) -> int:
    """The row of this domain in a buffer with one row for each domain."""
    return 0 if domain is Domain.SOURCE else 1
