"""The encoders of images: convolutions with separate batch statistics for each domain."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.config import BanditConfig
from model.encoders.arrays import Array
from model.encoders.base import TINY, Encoder, Frozen, domain_row
from model.rounds import HUGE, Domain

_MOST_CELLS = 8  # rows and columns of an image's last feature map
_LARGEST_PIXEL = HUGE**0.5  # convolutions of pixels up to here stay inside float32
_MOMENTUM = 0.1  # weight of a batch in the running statistics, as torch has it


class DomainBatchNorm(nn.Module):
    """Batch normalisation with separate statistics for each domain and a shared scale and shift."""

    mean: Tensor
    variance: Tensor
    batch_count: Tensor

    def __init__(self, size: int, momentum: float = _MOMENTUM) -> None:
        super().__init__()
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("mean", torch.zeros(2, size))
        self.register_buffer("variance", torch.ones(2, size))
        self.register_buffer("batch_count", torch.zeros(2))

    def forward(self, hidden: Tensor, domain: Domain) -> Tensor:
        row = domain_row(domain)
        mean, variance = self.mean[row], self.variance[row]
        if self.training:
            self.batch_count[row] += 1
        else:
            # No target context seen yet: use the source's statistics. `where` avoids a GPU sync.
            is_seen = self.batch_count[row] > 0
            mean = torch.where(is_seen, mean, self.mean[0])
            variance = torch.where(is_seen, variance, self.variance[0])
        return functional.batch_norm(
            hidden, mean, variance, self.weight, self.bias, self.training, self.momentum
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution with its norm, optionally followed by 2×2 max pooling."""

    channels: int
    kernel: int = 3
    stride: int = 1
    is_pooled: bool = False


class Conv(Encoder):
    """Three 3×3 convolutions with pooling over images C×H×W, each domain normalised separately."""

    layers: ClassVar[Sequence[Layer]] = (
        Layer(32, is_pooled=True),
        Layer(64, is_pooled=True),
        Layer(64),
    )

    def __init__(self, config: BanditConfig) -> None:
        super().__init__()
        if len(config.context_shape) != 3:
            raise ValueError(f"encoder: {config.encoder} needs contexts of shape (C, H, W)")
        channels, height, width = config.context_shape
        sizes = [layer.channels for layer in self.layers]
        self.latent_size = config.latent_size
        self._is_split = config.domain_batch_norm
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b.channels, b.kernel, b.stride, padding=b.kernel // 2, bias=False)
            for a, b in zip([channels, *sizes[:-1]], self.layers, strict=True)
        )
        self.norms = nn.ModuleList(map(DomainBatchNorm, sizes))
        self.cells = cells(height), cells(width)
        self.project = nn.Linear(sizes[-1] * math.prod(self.cells), config.latent_size)

    def forward(self, contexts: Tensor, domain: Domain) -> Tensor:
        return self._encoded(contexts, [(domain, len(contexts))])

    def forward_both(self, source: Tensor, target: Tensor) -> Tensor:
        counts = [(Domain.SOURCE, len(source)), (Domain.TARGET, len(target))]
        return self._encoded(torch.cat([source, target]), counts)

    def _encoded(self, contexts: Tensor, counts: Sequence[tuple[Domain, int]]) -> Tensor:
        """Latents of contexts that lie one domain after the other; `counts` says how many of each."""
        if not self._is_split:
            counts = [(Domain.SOURCE, len(contexts))]
        hidden = contexts.clip(-_LARGEST_PIXEL, _LARGEST_PIXEL)
        hidden = hidden.contiguous(memory_format=torch.channels_last)  # fastest on GPUs
        for layer, convolution, norm in zip(
            self.layers, self.convolutions, self.norms, strict=True
        ):
            hidden = convolution(hidden)
            if layer.is_pooled and min(hidden.shape[2:]) > 1:
                # Pooling before the norm leaves a quarter of the cells to normalise.
                hidden = functional.max_pool2d(hidden, 2)
            parts = hidden.split([count for _, count in counts])
            normed = [norm(part, domain) for part, (domain, _) in zip(parts, counts, strict=True)]
            hidden = torch.cat(normed) if len(normed) > 1 else normed[0]
            hidden = functional.relu(hidden, inplace=True)
        if hidden.shape[2:] != self.cells:
            hidden = functional.adaptive_avg_pool2d(hidden, self.cells)
        return functional.normalize(self.project(hidden.flatten(1)), eps=TINY)

    @torch.no_grad()
    def recalibrate(self, source: Tensor, target: Tensor) -> None:
        norms = [norm for norm in self.norms if isinstance(norm, DomainBatchNorm)]
        momenta = [norm.momentum for norm in norms]
        was_training = self.training
        self.train()
        for norm in norms:
            norm.momentum = 1.0
        split = ((source, Domain.SOURCE), (target, Domain.TARGET))
        joined = ((torch.cat([source, target]), Domain.SOURCE),)
        for contexts, domain in split if self._is_split else joined:
            if len(contexts) > 1:
                self(contexts, domain)
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.momentum = momentum
        self.train(was_training)

    def frozen(self, domain: Domain, device: torch.device) -> Frozen:
        network = copy.deepcopy(self).eval().to(device)

        @torch.inference_mode()
        def forward(contexts: Array) -> Array:
            if isinstance(contexts, np.ndarray):
                contexts = np.require(contexts, requirements=["W"])  # torch warns about others
            # Full float32 on every device, so that CPU and GPU choose the same arm.
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                latents = network(torch.as_tensor(contexts), domain)
            return latents.numpy() if device.type == "cpu" else latents

        return forward


class StridedConv(Conv):
    """Four convolutions; the first two have stride 2, which halves the arithmetic."""

    layers: ClassVar[Sequence[Layer]] = (
        Layer(32, kernel=5, stride=2),
        Layer(48, stride=2),
        Layer(48),
        Layer(48),
    )


def cells(side: int) -> int:
    """Rows (or columns) of the last feature map for an image with `side` rows (or columns)."""
    return min(_MOST_CELLS, max(1, side // 4))
