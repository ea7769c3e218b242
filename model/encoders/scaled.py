"""Encoders of vectors that are not learned and see measured features on one scale."""

import torch
from torch import Tensor
from torch.nn import functional

from model.config import BanditConfig
from model.encoders.arrays import Array, array_on, arrays_on
from model.encoders.base import TINY, Encoder, Frozen, domain_row
from model.encoders.vectors import CLIP, Projection, Standardise, are_binary, inverse_spread
from model.rounds import Domain


class MeasuredScale(Standardise):
    """(x − μ)/σ of the measured features; binary ones stay as they are.

    μ is the source's, where rewards are learned. σ is the spread within the domains. A rare binary feature
    would weigh most if it were standardised, and it may give the domain away.
    """

    fitted_counts: Tensor

    def __init__(self, config: BanditConfig, size: int) -> None:
        super().__init__(size)
        self._slot_kinds = config.slot_kinds
        self.register_buffer("fitted_counts", torch.zeros(2))

    def refit(self, source: Tensor, target: Tensor) -> bool:
        """Fit to contexts (n, size) once a domain has twice as many as at the last fit."""
        counts = torch.tensor([float(len(source)), float(len(target))]).to(self.fitted_counts)
        # Rarely: what is learned on top needs coordinates that stay.
        if counts.sum() < 2 or bool((counts < (2 * self.fitted_counts).clamp_min(1)).all()):
            return False
        is_binary = are_binary(torch.cat([source, target]), self._slot_kinds)
        center = (source if len(source) else target).double().mean(dim=0)
        squares = torch.stack([_squares(each) for each in (source, target) if len(each)]).sum(dim=0)
        scale = inverse_spread((squares / (len(source) + len(target) - 1)).sqrt())
        self.center.copy_(center.masked_fill(is_binary, 0.0))
        self.scale.copy_(scale.masked_fill(is_binary, 1.0))
        self.fitted_counts.copy_(counts)
        return True

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        """The forward function of one domain on one device."""
        row = domain_row(domain)
        center, scale = array_on(device, self.center[row]), array_on(device, self.scale[row])

        def forward(contexts: Array) -> Array:
            return ((contexts.reshape(len(contexts), -1) - center) * scale).clip(-CLIP, CLIP)

        return forward


def _squares(contexts: Tensor) -> Tensor:
    """Sums of squares about the mean, (size,)."""
    wide = contexts.double()
    return (wide - wide.mean(dim=0)).square().sum(dim=0)


class Scaled(Encoder):
    """φ(x) = (1, s(x)) / ‖(1, s(x))‖ with s the measured scale.

    The 1 is the constant that centred features have lost.
    """

    is_rowwise = True  # no sum runs over more than one row

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        size = torch.Size(config.context_shape).numel()
        self.latent_size = size + 1
        self.scale = MeasuredScale(config, size)

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        scaled = self.scale(contexts.flatten(1), domain)
        return functional.normalize(functional.pad(scaled, (1, 0), value=1.0), eps=TINY)

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        self.scale.refit(source.flatten(1), target.flatten(1))

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        scale, arrays = self.scale.frozen(domain, device), arrays_on(device)
        return lambda contexts: arrays.unit(arrays.after_one(scale(contexts)))


class ScaledProjection(Projection):
    """PCA over the measured scale."""

    def __init__(self, config: BanditConfig) -> None:
        super().__init__(config)
        self.scale = MeasuredScale(config, self.center.numel())

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        return super().forward(self.scale(contexts.flatten(1), domain), domain)

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        source, target = source.flatten(1), target.flatten(1)
        if self.scale.refit(source, target):
            self.fitted_count.zero_()  # components of another scale mean nothing
            scaled = (self.scale(source, Domain.SOURCE), self.scale(target, Domain.TARGET))
            super().prepare(*scaled, rewarded)

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        scale, project = self.scale.frozen(domain, device), super().frozen(domain, device)
        return lambda contexts: project(scale(contexts))
