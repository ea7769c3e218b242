"""Encoders of vectors: identity, PCA, the MLP, PCA with the MLP, and the committee of towers."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import BanditConfig
from model.encoders.arrays import Array, array_on, arrays_on
from model.encoders.base import TINY, Encoder, Frozen, domain_row
from model.encoders.ensemble import TowerLinear, fitting_count, member_weights
from model.encoders.pca import IncrementalPCA
from model.rounds import HUGE, Domain

CLIP = 10.0  # standardised inputs beyond it carry no news
_LEAST_TO_SPLIT = 32  # contexts of a domain that give it a mean and a spread of its own


class Identity(Encoder):
    """φ(x) = x / ‖x‖."""

    is_rowwise = True  # no sum runs over more than one row

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        self.latent_size = int(np.prod(config.context_shape))

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        return functional.normalize(contexts.flatten(1).clip(-HUGE, HUGE), eps=TINY)

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        arrays = arrays_on(device)
        return lambda contexts: arrays.unit(arrays.clip(contexts.reshape(len(contexts), -1), HUGE))


class Projection(Encoder):
    """φ(x) = V(x − μ) / ‖V(x − μ)‖ with V, μ by PCA over the contexts of both domains."""

    components: Tensor
    center: Tensor
    fitted_count: Tensor

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        input_size = int(np.prod(config.context_shape))
        self.latent_size = min(config.component_count, input_size)
        # Before the first fit: the leading coordinates.
        self.register_buffer("components", torch.eye(self.latent_size, input_size))
        self.register_buffer("center", torch.zeros(input_size))
        self.register_buffer("fitted_count", torch.zeros(()))

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        centered = (contexts.flatten(1) - self.center).clip(-HUGE, HUGE)
        return functional.normalize(centered @ self.components.T, eps=TINY)

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        # Again only for twice the contexts: a fit costs seconds for pictures, and what learns on
        # top of it needs coordinates that stay.
        if len(source) + len(target) < 2 * float(self.fitted_count):
            return
        pca = IncrementalPCA(self.latent_size)
        for contexts in (source, target):
            for chunk in contexts.flatten(1).split(1024):
                pca.partial_fit(chunk.double().cpu().numpy())
        if pca.sample_count > self.latent_size:
            self.components.copy_(torch.as_tensor(pca.components))
            self.center.copy_(torch.as_tensor(pca.mean))
            self.fitted_count.fill_(pca.sample_count)

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        components, center = array_on(device, self.components.T), array_on(device, self.center)
        arrays = arrays_on(device)

        def forward(contexts: Array) -> Array:
            centered = contexts.reshape(len(contexts), -1) - center
            return arrays.unit(arrays.clip(centered, HUGE) @ components)

        return forward


class Standardise(nn.Module):
    """(x − μ)/σ clipped to ±CLIP, with μ and σ of each domain frozen between two calls of `fit`."""

    center: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(2, size))
        self.register_buffer("scale", torch.ones(2, size))

    def fit(self, contexts: Tensor, *domains: Domain) -> None:
        """μ and 1/σ of these domains from contexts (n, size); constant features keep scale 1."""
        wide = contexts.double()
        deviation = wide.std(dim=0)
        scale = 1.0 / torch.where(
            deviation > SMALLEST_SPREAD, deviation, torch.ones_like(deviation)
        )
        for domain in domains:
            self.center[domain_row(domain)] = wide.mean(dim=0)
            self.scale[domain_row(domain)] = scale

    def approach(self, other: "Standardise", shares: Tensor) -> None:
        """Keep this share (size,) of each feature's μ and 1/σ, and take the rest from the other's."""
        for mine, theirs in ((self.center, other.center), (self.scale, other.scale)):
            mine.copy_(torch.lerp(theirs, mine, shares))

    def weaken(self, shares: Tensor) -> None:
        """Let each feature count by its share (size,) until the next `fit`."""
        self.scale *= shares

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        row = domain_row(domain)
        return ((contexts - self.center[row]) * self.scale[row]).clip(-CLIP, CLIP)


class ScaledEncoder(Encoder):
    """An encoder that scales each domain's vectors first; all that follows is the same for both."""

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        return self.perceived(self.scaled(contexts, domain))

    def together(self, source: Tensor, target: Tensor) -> Tensor:
        scaled = [self.scaled(source, Domain.SOURCE), self.scaled(target, Domain.TARGET)]
        return self.perceived(torch.cat(scaled))

    def scaled(self, contexts: Tensor, domain: Domain) -> Tensor:
        """What the layers see of contexts (n, *shape), (n, …)."""
        raise NotImplementedError

    def perceived(self, scaled: Tensor) -> Tensor:
        """Latents (n, latent_size) of what was scaled."""
        raise NotImplementedError


class MLP(ScaledEncoder):
    """A plain multilayer perceptron over standardised vectors; no batch statistics inside."""

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        sizes = (int(np.prod(config.context_shape)), *config.hidden_sizes, config.latent_size)
        self.latent_size = config.latent_size
        self.standardise = Standardise(sizes[0])
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def scaled(self, contexts: Tensor, domain: Domain) -> Tensor:
        standardised: Tensor = self.standardise(contexts.flatten(1), domain)
        return standardised

    def perceived(self, scaled: Tensor) -> Tensor:
        hidden = scaled
        for layer in self.layers[:-1]:
            hidden = functional.relu(layer(hidden))
        return functional.normalize(self.layers[-1](hidden), eps=TINY)

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        source, target = source.flatten(1), target.flatten(1)
        both = torch.cat([source, target])
        if len(both) > 1:
            self.standardise.fit(both, *Domain)
            self.standardise.weaken(shares_seen(rewarded.flatten(1), both))

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        row = domain_row(domain)
        center, scale = (
            array_on(device, self.standardise.center[row]),
            array_on(device, self.standardise.scale[row]),
        )
        # Transposed once here: a plain product is several times cheaper than nn.Linear at batch 1.
        linears = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        layers = [
            (array_on(device, layer.weight.T), array_on(device, layer.bias)) for layer in linears
        ]
        arrays = arrays_on(device)

        def forward(contexts: Array) -> Array:
            hidden = arrays.clip((contexts.reshape(len(contexts), -1) - center) * scale, CLIP)
            for weight, bias in layers[:-1]:
                hidden = hidden @ weight
                hidden += bias
                hidden = arrays.relu(hidden)
            weight, bias = layers[-1]
            return arrays.unit(hidden @ weight + bias)

        return forward


class ProjectedMLP(MLP):
    """PCA, then the MLP (the paper's NLinUCB-P)."""

    def __init__(self, config: BanditConfig) -> None:
        projection = Projection(config)
        super().__init__(config.changed(context_shape=(projection.latent_size,)))
        self.projection = projection

    def scaled(self, contexts: Tensor, domain: Domain) -> Tensor:
        return super().scaled(self.projection(contexts, domain), domain)

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        self.projection.prepare(source, target, rewarded)
        project = self.projection
        super().prepare(
            project(source, Domain.SOURCE),
            project(target, Domain.TARGET),
            project(rewarded, Domain.SOURCE),
        )

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        project, perceive = self.projection.frozen(domain, device), super().frozen(domain, device)
        return lambda contexts: perceive(project(contexts))


class Committee(ScaledEncoder):
    """T small MLPs side by side, their latents joined; see `towers`."""

    weights: Tensor

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        self.towers = fitting_count(config.tower_count, config.latent_size)
        sizes = (
            int(np.prod(config.context_shape)),
            *config.hidden_sizes,
            config.latent_size // self.towers,
        )
        self.latent_size = config.latent_size
        # Even towers see both domains on one scale, odd ones each domain on its own.
        self.common, self.own = Standardise(sizes[0]), Standardise(sizes[0])
        self.layers = nn.ModuleList(TowerLinear(self.towers, a, b) for a, b in pairwise(sizes))
        self.register_buffer("weights", torch.ones(self.towers))

    def scaled(self, contexts: Tensor, domain: Domain) -> Tensor:
        """On both scales, (n, 2, size)."""
        flat = contexts.flatten(1)
        return torch.stack([self.common(flat, domain), self.own(flat, domain)], dim=1)

    def perceived(self, scaled: Tensor) -> Tensor:
        hidden = scaled.repeat(1, -(-self.towers // 2), 1)[:, : self.towers]  # (n, T, size)
        for layer in self.layers[:-1]:
            hidden = functional.relu(layer(hidden))
        latents: Tensor = functional.normalize(self.layers[-1](hidden), dim=2, eps=TINY)
        joined: Tensor = latents * (self.weights * self.towers**-0.5)[:, None]
        return joined.flatten(1)

    @torch.no_grad()
    def recalibrate(self, source: Tensor, target: Tensor) -> None:
        """The members' weights, by how many of the features that are used are measured."""
        if len(target):
            is_measured = ~is_yes_or_no(torch.cat([source, target]).flatten(1))
            measured = share_measured(is_measured, self.common.scale[0] != 0)
            self.weights.copy_(member_weights(self.towers, float(measured)))

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        source, target = source.flatten(1), target.flatten(1)
        both = torch.cat([source, target])
        if len(both) < 2:
            return
        shares = shares_seen(rewarded.flatten(1), both)
        self.common.fit(both, *Domain)
        if min(len(source), len(target)) < _LEAST_TO_SPLIT:
            self.own.fit(both, *Domain)
        else:
            self.own.fit(source, Domain.SOURCE)
            self.own.fit(target, Domain.TARGET)
            # Where most features say yes or no, a measurement differs because the subjects do.
            is_measured = ~is_yes_or_no(both)
            self.own.approach(self.common, is_measured * share_measured(is_measured, shares != 0))
        self.common.weaken(shares)
        self.own.weaken(shares)

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        row = domain_row(domain)
        scales = (self.common, self.own)[: self.towers]
        kinds = len(scales)
        center, scale = (
            array_on(device, torch.stack([getattr(each, name)[row] for each in scales])[:, None])
            for name in ("center", "scale")
        )

        def by_kind(values: Tensor) -> Tensor:
            """(T, …) as (kinds, T ÷ kinds, …): towers on one scale are multiplied at once."""
            parted: Tensor = values.unflatten(0, (-1, kinds))
            return parted.transpose(0, 1)

        layers = [
            (by_kind(layer.weight), by_kind(layer.bias))
            for layer in self.layers
            if isinstance(layer, TowerLinear)
        ]
        first_weight, first_bias = (
            array_on(device, values.transpose(1, 2).flatten(2)) for values in layers[0]
        )
        others = [(array_on(device, weight), array_on(device, bias)) for weight, bias in layers[1:]]
        arrays, each = arrays_on(device), self.towers // kinds
        weights = array_on(device, by_kind(self.weights * self.towers**-0.5)[:, :, None, None])

        def forward(contexts: Array) -> Array:
            count = len(contexts)
            scaled = arrays.clip((contexts.reshape(count, -1) - center) * scale, CLIP)
            hidden = scaled @ first_weight  # (kinds, n, towers · size)
            hidden += first_bias
            hidden = hidden.reshape(kinds, count, each, -1).swapaxes(1, 2)
            for weight, bias in others:
                hidden = arrays.relu(hidden) @ weight
                hidden += bias
            latents = (arrays.unit(hidden) * weights).swapaxes(0, 2)  # (n, towers, kinds, size)
            return latents.reshape(count, -1)

        return forward


SMALLEST_SPREAD = 1e-6  # of a feature that is not taken for constant


def is_yes_or_no(contexts: Tensor) -> Tensor:
    """The features (size,) that have at most two values in contexts (n, size), n > 0."""
    is_end = (contexts == contexts.amin(dim=0)) | (contexts == contexts.amax(dim=0))
    return is_end.all(dim=0)


def shares_seen(rewarded: Tensor, contexts: Tensor) -> Tensor:
    """How far rewards can tell what features (size,) mean, between 0 and 1.

    Not at all where contexts that have rewards (n, size) do not differ; what they say of a yes or no
    counts by the share of its variance, over contexts of both domains (m, size), that they have seen.
    """
    if min(len(rewarded), len(contexts)) < 2:
        return torch.ones_like(contexts[0])
    varied, varies = rewarded.double().var(dim=0), contexts.double().var(dim=0)
    seen = (varied / varies.clamp_min(SMALLEST_SPREAD**2)).clamp_max(1.0)
    shares = torch.where(is_yes_or_no(contexts), seen, torch.ones_like(seen))
    is_constant = rewarded.amax(dim=0) - rewarded.amin(dim=0) <= SMALLEST_SPREAD
    return shares.masked_fill(is_constant, 0.0).float()


def share_measured(is_measured: Tensor, is_used: Tensor) -> Tensor:
    """The share of the features (size,) that are used which are measured: more than a yes or no."""
    return (is_measured & is_used).sum() / is_used.sum().clamp_min(1)
