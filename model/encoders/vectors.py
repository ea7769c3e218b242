"""Encoders of vectors: identity, PCA, the MLP, PCA with the MLP, and the ensemble of small MLPs."""

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import BanditConfig
from model.encoders.arrays import Array, array_on, arrays_on
from model.encoders.base import TINY, Encoder, Frozen, domain_row
from model.encoders.ensemble import MemberLinear, fitting_count, member_weights
from model.encoders.pca import IncrementalPCA
from model.rounds import HUGE, Domain

CLIP = 10.0  # limit on standardised inputs
_LEAST_TO_SPLIT = 32  # minimum of contexts for a domain to get its own mean and spread
_SMALLEST_SPREAD = 1e-6  # features that vary less count as constant
PCA_ROWS = 1024  # contexts added to a PCA at once: bounds its memory


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
        return lambda contexts: arrays.unit(contexts.reshape(len(contexts), -1).clip(-HUGE, HUGE))


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
        # Refit only when the contexts have doubled: a fit costs seconds for images, and layers on top
        # need stable coordinates.
        if len(source) + len(target) < 2 * float(self.fitted_count):
            return
        pca = IncrementalPCA(self.latent_size)
        for contexts in (source, target):
            for chunk in contexts.flatten(1).split(PCA_ROWS):
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
            return arrays.unit(centered.clip(-HUGE, HUGE) @ components)

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
        scale = inverse_spread(wide.std(dim=0))
        for domain in domains:
            self.center[domain_row(domain)] = wide.mean(dim=0)
            self.scale[domain_row(domain)] = scale

    def blend_towards(self, other: "Standardise", kept: Tensor) -> None:
        """Interpolate μ and 1/σ: keep the fraction `kept` (size,) of each feature, take the rest from `other`."""
        for mine, theirs in ((self.center, other.center), (self.scale, other.scale)):
            mine.copy_(torch.lerp(theirs, mine, kept))

    def weight_features(self, weights: Tensor) -> None:
        """Multiply each feature by its weight (size,) until the next `fit`."""
        self.scale *= weights

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        row = domain_row(domain)
        return ((contexts - self.center[row]) * self.scale[row]).clip(-CLIP, CLIP)


def inverse_spread(deviation: Tensor) -> Tensor:
    """1/σ of each feature; constant features keep scale 1."""
    return 1.0 / torch.where(deviation > _SMALLEST_SPREAD, deviation, torch.ones_like(deviation))


class ScaledEncoder(Encoder):
    """An encoder that scales each domain's vectors first; its layers are shared by both domains."""

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        return self.encode_scaled(self.scaled(contexts, domain))

    def forward_both(self, source: Tensor, target: Tensor) -> Tensor:
        scaled = [self.scaled(source, Domain.SOURCE), self.scaled(target, Domain.TARGET)]
        return self.encode_scaled(torch.cat(scaled))

    def scaled(self, contexts: Tensor, domain: Domain) -> Tensor:
        """The input of the layers, (n, …), from contexts (n, *shape)."""
        raise NotImplementedError

    def encode_scaled(self, scaled: Tensor) -> Tensor:
        """Latents (n, latent_size) of scaled contexts."""
        raise NotImplementedError


class MLP(ScaledEncoder):
    """A plain multilayer perceptron over standardised vectors; no batch statistics inside."""

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        sizes = (int(np.prod(config.context_shape)), *config.hidden_sizes, config.latent_size)
        self.latent_size = config.latent_size
        self._downweights = config.downweight_unseen
        self._slot_kinds = config.slot_kinds
        self.standardise = Standardise(sizes[0])
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def scaled(self, contexts: Tensor, domain: Domain) -> Tensor:
        standardised: Tensor = self.standardise(contexts.flatten(1), domain)
        return standardised

    def encode_scaled(self, scaled: Tensor) -> Tensor:
        hidden = scaled
        for layer in self.layers[:-1]:
            hidden = functional.relu(layer(hidden))
        return functional.normalize(self.layers[-1](hidden), eps=TINY)

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        source, target = source.flatten(1), target.flatten(1)
        both = torch.cat([source, target])
        if len(both) > 1:
            self.standardise.fit(both, *Domain)
            if self._downweights:
                is_binary = are_binary(both, self._slot_kinds)
                weights = variation_weights(rewarded.flatten(1), both, is_binary)
                self.standardise.weight_features(weights)

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
            hidden = ((contexts.reshape(len(contexts), -1) - center) * scale).clip(-CLIP, CLIP)
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
        super().__init__(config.changed(context_shape=(projection.latent_size,), slot_kinds=""))
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
        project, encode = self.projection.frozen(domain, device), super().frozen(domain, device)
        return lambda contexts: encode(project(contexts))


class Ensemble(ScaledEncoder):
    """T small MLPs side by side, their latents joined; see `model/encoders/ensemble.py`."""

    weights: Tensor

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        self.members = fitting_count(config.tower_count, config.latent_size)
        sizes = (
            int(np.prod(config.context_shape)),
            *config.hidden_sizes,
            config.latent_size // self.members,
        )
        self.latent_size = config.latent_size
        self._downweights = config.downweight_unseen
        self._aligns_binary = config.align_binary
        self._weighs_evenly = config.align_binary or not config.is_aligned
        self._slot_kinds = config.slot_kinds
        # Even members see both domains on one scale, odd ones each domain on its own.
        self.common, self.own = Standardise(sizes[0]), Standardise(sizes[0])
        self.layers = nn.ModuleList(MemberLinear(self.members, a, b) for a, b in pairwise(sizes))
        self.register_buffer("weights", torch.ones(self.members))

    def scaled(self, contexts: Tensor, domain: Domain) -> Tensor:
        """On both scales, (n, 2, size)."""
        flat = contexts.flatten(1)
        return torch.stack([self.common(flat, domain), self.own(flat, domain)], dim=1)

    def encode_scaled(self, scaled: Tensor) -> Tensor:
        hidden = scaled.repeat(1, -(-self.members // 2), 1)[:, : self.members]  # (n, T, size)
        for layer in self.layers[:-1]:
            hidden = functional.relu(layer(hidden))
        latents: Tensor = functional.normalize(self.layers[-1](hidden), dim=2, eps=TINY)
        joined: Tensor = latents * (self.weights * self.members**-0.5)[:, None]
        return joined.flatten(1)

    @torch.no_grad()
    def recalibrate(self, source: Tensor, target: Tensor) -> None:
        """Set the members' weights by the fraction of used features that are measured."""
        if len(target) and not self._weighs_evenly:
            both = torch.cat([source, target]).flatten(1)
            is_measured = ~are_binary(both, self._slot_kinds)
            measured = measured_fraction(is_measured, self.common.scale[0] != 0)
            self.weights.copy_(member_weights(self.members, float(measured)))

    def prepare(self, source: Tensor, target: Tensor, rewarded: Tensor) -> None:
        source, target = source.flatten(1), target.flatten(1)
        both = torch.cat([source, target])
        if len(both) < 2:
            return
        weights, is_binary = torch.ones_like(both[0]), are_binary(both, self._slot_kinds)
        if self._downweights:
            weights = variation_weights(rewarded.flatten(1), both, is_binary)
        self.common.fit(both, *Domain)
        if min(len(source), len(target)) < _LEAST_TO_SPLIT:
            self.own.fit(both, *Domain)
        else:
            self.own.fit(source, Domain.SOURCE)
            self.own.fit(target, Domain.TARGET)
            if not self._aligns_binary:
                # If most features are binary, measured features differ because the subjects differ.
                measured = measured_fraction(~is_binary, weights != 0)
                self.own.blend_towards(self.common, ~is_binary * measured)
        self.common.weight_features(weights)
        self.own.weight_features(weights)

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        row = domain_row(domain)
        scales = (self.common, self.own)[: self.members]
        kinds = len(scales)
        center, scale = (
            array_on(device, torch.stack([getattr(each, name)[row] for each in scales])[:, None])
            for name in ("center", "scale")
        )

        def by_kind(values: Tensor) -> Tensor:
            """(T, …) as (kinds, T ÷ kinds, …): members on one scale are multiplied at once."""
            parted: Tensor = values.unflatten(0, (-1, kinds))
            return parted.transpose(0, 1)

        layers = [
            (by_kind(layer.weight), by_kind(layer.bias))
            for layer in self.layers
            if isinstance(layer, MemberLinear)
        ]
        first_weight, first_bias = (
            array_on(device, values.transpose(1, 2).flatten(2)) for values in layers[0]
        )
        others = [(array_on(device, weight), array_on(device, bias)) for weight, bias in layers[1:]]
        arrays, each = arrays_on(device), self.members // kinds
        weights = array_on(device, by_kind(self.weights * self.members**-0.5)[:, :, None, None])

        def forward(contexts: Array) -> Array:
            count = len(contexts)
            scaled = ((contexts.reshape(count, -1) - center) * scale).clip(-CLIP, CLIP)
            hidden = scaled @ first_weight  # (kinds, n, members · size)
            hidden += first_bias
            hidden = hidden.reshape(kinds, count, each, -1).swapaxes(1, 2)
            for weight, bias in others:
                hidden = arrays.relu(hidden) @ weight
                hidden += bias
            latents = (arrays.unit(hidden) * weights).swapaxes(0, 2)  # (n, members, kinds, size)
            return latents.reshape(count, -1)

        return forward


def are_binary(contexts: Tensor, slot_kinds: str = "") -> Tensor:
    """The binary features (*shape,) of contexts (n, *shape), n > 0.

    `slot_kinds` declares them. Without it, features with at most two values look binary.
    """
    if slot_kinds:
        declared = torch.tensor([kind == "b" for kind in slot_kinds], device=contexts.device)
        return declared.view(contexts.shape[1:])
    is_end = (contexts == contexts.amin(dim=0)) | (contexts == contexts.amax(dim=0))
    return is_end.all(dim=0)


def variation_weights(rewarded: Tensor, contexts: Tensor, is_binary: Tensor) -> Tensor:
    """Weights of the features (size,), from 0 to 1: features that never varied in rewarded rounds are untrained.

    A feature that is constant over the rewarded contexts (n, size) gets 0. A binary feature gets its
    variance over the rewarded contexts relative to that over all contexts (m, size). Others get 1.
    """
    if min(len(rewarded), len(contexts)) < 2:
        return torch.ones_like(contexts[0])
    varied, varies = rewarded.double().var(dim=0), contexts.double().var(dim=0)
    seen = (varied / varies.clamp_min(_SMALLEST_SPREAD**2)).clamp_max(1.0)
    weights = torch.where(is_binary, seen, torch.ones_like(seen))
    is_constant = rewarded.amax(dim=0) - rewarded.amin(dim=0) <= _SMALLEST_SPREAD
    return weights.masked_fill(is_constant, 0.0).float()


def measured_fraction(is_measured: Tensor, is_used: Tensor) -> Tensor:
    """The fraction of the used features (size,) that are measured, that is, not binary."""
    return (is_measured & is_used).sum() / is_used.sum().clamp_min(1)
