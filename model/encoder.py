"""Encoders φ: identity, PCA, MLP for vectors, conv for images; each has unit-norm output.

A trained encoder is frozen into a plain function of arrays for serving: numpy on the CPU, where it
is the fastest at small batches, torch on a GPU.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.arrays import Array, array_on, arrays_on
from model.config import BanditConfig
from model.pca import IncrementalPCA
from model.rounds import HUGE, Domain, Floats

# From contexts (n, …) to latents (n, d).
Frozen = Callable[[Array], Array]

CLIP = 10.0  # standardised inputs beyond it carry no news
TINY = 1e-12


class Encoder(nn.Module):
    """Maps contexts (n, *shape) of a domain to latents (n, latent_size) of norm 1."""

    latent_size: int

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        """Latents with gradients, batch statistics in training mode."""
        raise NotImplementedError

    def prepare(self, source: Tensor, target: Tensor) -> None:
        """Fit what is not learned by gradient from contexts of both domains (either may be empty)."""

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        """The forward function of one domain on one device, in evaluation mode."""
        raise NotImplementedError

    @property
    def is_learned(self) -> bool:
        """Whether gradient steps change it."""
        return any(True for _ in self.parameters())


class Identity(Encoder):
    """φ(x) = x / ‖x‖."""

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

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        input_size = int(np.prod(config.context_shape))
        self.latent_size = min(config.component_count, input_size)
        # Before the first fit: the leading coordinates.
        self.register_buffer("components", torch.eye(self.latent_size, input_size))
        self.register_buffer("center", torch.zeros(input_size))

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        centered = (contexts.flatten(1) - self.center).clip(-HUGE, HUGE)
        return functional.normalize(centered @ self.components.T, eps=TINY)

    def prepare(self, source: Tensor, target: Tensor) -> None:
        pca = IncrementalPCA(self.latent_size)
        for contexts in (source, target):
            for chunk in contexts.flatten(1).split(1024):
                pca.partial_fit(chunk.double().cpu().numpy())
        if pca.sample_count > self.latent_size:
            self.components.copy_(torch.as_tensor(pca.components))
            self.center.copy_(torch.as_tensor(pca.mean))

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        components, center = array_on(device, self.components.T), array_on(device, self.center)
        arrays = arrays_on(device)

        def forward(contexts: Array) -> Array:
            centered = contexts.reshape(len(contexts), -1) - center
            return arrays.unit(arrays.clip(centered, HUGE) @ components)

        return forward


class Standardise(nn.Module):
    """(x − μ)/σ clipped to ±CLIP, with μ and σ frozen between two calls of `fit`."""

    center: Tensor
    scale: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("center", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def fit(self, contexts: Tensor) -> None:
        """μ and 1/σ of the contexts (n, size); constant features keep scale 1."""
        wide = contexts.double()
        deviation = wide.std(dim=0)
        self.center.copy_(wide.mean(dim=0))
        self.scale.copy_(1.0 / torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)))

    def forward(self, contexts: Tensor) -> Tensor:
        return ((contexts - self.center) * self.scale).clip(-CLIP, CLIP)


class MLP(Encoder):
    """A plain multilayer perceptron over standardised vectors; no batch statistics inside."""

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        sizes = (int(np.prod(config.context_shape)), *config.hidden_sizes, config.latent_size)
        self.latent_size = config.latent_size
        self.standardise = Standardise(sizes[0])
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        hidden = self.standardise(contexts.flatten(1))
        for layer in self.layers[:-1]:
            hidden = functional.relu(layer(hidden))
        return functional.normalize(self.layers[-1](hidden), eps=TINY)

    def prepare(self, source: Tensor, target: Tensor) -> None:
        contexts = torch.cat([source, target]).flatten(1)
        if len(contexts) > 1:
            self.standardise.fit(contexts)

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        center, scale = (
            array_on(device, self.standardise.center),
            array_on(device, self.standardise.scale),
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


class DomainBatchNorm(nn.Module):
    """Batch normalisation with statistics of its own for each domain, and shared scale and shift."""

    mean: Tensor
    variance: Tensor
    batch_count: Tensor

    def __init__(self, size: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("mean", torch.zeros(2, size))
        self.register_buffer("variance", torch.ones(2, size))
        self.register_buffer("batch_count", torch.zeros(2))

    def forward(self, hidden: Tensor, domain: Domain) -> Tensor:
        row = _row(domain)
        if self.training:
            self.batch_count[row] += 1
        elif not self.batch_count[row]:
            row = _row(Domain.SOURCE)  # no target context seen yet: behave as on the source
        return functional.batch_norm(
            hidden,
            self.mean[row],
            self.variance[row],
            self.weight,
            self.bias,
            self.training,
            self.momentum,
        )


class Conv(Encoder):
    """Three 3×3 convolutions with pooling over images C×H×W, each domain normalised by itself."""

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        if len(config.context_shape) != 3:
            raise ValueError("encoder: conv needs contexts of shape (C, H, W)")
        channels, height, width = config.context_shape
        sizes = (channels, 32, 64, 64)
        self.latent_size = config.latent_size
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1, bias=False) for a, b in pairwise(sizes)
        )
        self.norms = nn.ModuleList(map(DomainBatchNorm, sizes[1:]))
        cells = max(1, height // 8) * max(1, width // 8)
        self.pool = nn.AdaptiveAvgPool2d((max(1, height // 8), max(1, width // 8)))
        self.project = nn.Linear(sizes[-1] * cells, config.latent_size)

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        hidden = contexts.clip(-(HUGE**0.5), HUGE**0.5)
        for index, (convolution, norm) in enumerate(
            zip(self.convolutions, self.norms, strict=True)
        ):
            hidden = functional.relu(norm(convolution(hidden), domain))
            if index < 2 and min(hidden.shape[2:]) > 1:
                hidden = functional.max_pool2d(hidden, 2)
        return functional.normalize(self.project(self.pool(hidden).flatten(1)), eps=TINY)

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        network = copy.deepcopy(self).eval().to(device)

        @torch.inference_mode()
        def forward(contexts: Array) -> Array:
            # Full float32 on every device, so that CPU and GPU choose the same arm.
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                latents = network(torch.as_tensor(contexts), domain)
            return latents.numpy() if device.type == "cpu" else latents

        return forward


class ProjectedMLP(MLP):
    """PCA, then the MLP (the paper's NLinUCB-P)."""

    def __init__(self, config: BanditConfig) -> None:
        projection = Projection(config)
        super().__init__(config.changed(context_shape=(projection.latent_size,)))
        self.projection = projection

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        return super().forward(self.projection(contexts, domain), domain)

    def prepare(self, source: Tensor, target: Tensor) -> None:
        self.projection.prepare(source, target)
        super().prepare(
            self.projection(source, Domain.SOURCE), self.projection(target, Domain.TARGET)
        )

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        project, perceive = self.projection.frozen(domain, device), super().frozen(domain, device)
        return lambda contexts: perceive(project(contexts))


@dataclass(frozen=True, slots=True)
class FrozenEncoder:
    """An encoder as plain functions of arrays on one device, one a domain."""

    latent_size: int
    device: torch.device
    forwards: dict[Domain, Frozen]

    @classmethod
    def of(cls, encoder: Encoder, device: torch.device) -> Self:
        """Freeze the encoder's present values."""
        forwards = {domain: encoder.frozen(domain, device) for domain in Domain}
        return cls(encoder.latent_size, device, forwards)

    def on_host(self, contexts: Floats, domain: Domain) -> Floats:
        """Latents (n, d) of host contexts, back on the host."""
        if self.device.type == "cpu":
            return np.asarray(self.forwards[domain](contexts))
        with torch.inference_mode():
            moved = torch.from_numpy(contexts).to(self.device)
            return np.asarray(self.forwards[domain](moved).cpu())


# The one place where a kind of encoder is registered.
ENCODERS: dict[str, Callable[[BanditConfig], Encoder]] = {
    "identity": Identity,
    "pca": Projection,
    "mlp": MLP,
    "conv": Conv,
    "pca-mlp": ProjectedMLP,
}


def build_encoder(config: BanditConfig) -> Encoder:
    """The encoder that the configuration names, freshly initialised from torch's generator."""
    kind = config.encoder
    if kind == "auto":
        kind = "conv" if len(config.context_shape) == 3 else "mlp"
    if kind not in ENCODERS:
        raise ValueError(f"encoder: must be one of auto, {', '.join(ENCODERS)}")
    return ENCODERS[kind](config)


def _row(domain: Domain) -> int:
    return 0 if domain is Domain.SOURCE else 1
