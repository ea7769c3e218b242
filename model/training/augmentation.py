"""Random augmentation of contexts: changes that must not change the decision.

Vectors get noise, and some features are replaced by their mean. Images get small affine moves, noise,
and a gain, bias and sign for each channel or parts of it. All draws come from one torch generator.
"""

import math

import torch
from torch import Generator, Tensor
from torch.nn import functional

from model.encoders.vectors import are_binary

# Vectors.
_NOISE = 0.1  # of a feature's spread
_BINARY_DROPOUT = 0.1  # upper limit: other features seldom predict a binary one
# Images: changes that keep the class of digits and photographs.
_LARGEST_ANGLE = 0.26  # radians, 15°
_SCALE_CHANGE = 0.15
_LARGEST_SHIFT = 0.2  # of half an image
_GAIN_CHANGE = 0.5
_LARGEST_BIAS = 0.3
_PIXEL_NOISE = 0.05  # its spread
_FIELD = 3  # rows and columns of the points between which a gain field is interpolated
_IMAGES_AT_ONCE = 224  # parts of this size stay in a CPU's caches
_BYTE_SPREAD = math.sqrt((2**16 - 1) / 12)  # of the numbers from −127.5 to 127.5


def augmented(
    contexts: Tensor, generator: Generator, dropout: float, slot_kinds: str = ""
) -> Tensor:
    """Each context changed at random, (n, *shape); `dropout` and `slot_kinds` are those of vectors."""
    if contexts.ndim != 4:
        return augmented_vectors(contexts, generator, dropout, slot_kinds=slot_kinds)
    parts = contexts.split(_IMAGES_AT_ONCE) if contexts.device.type == "cpu" else [contexts]
    return torch.cat([augmented_images(part, generator) for part in parts])


def augmented_vectors(
    contexts: Tensor,
    generator: Generator,
    dropout: float,
    noise: float = _NOISE,
    slot_kinds: str = "",
) -> Tensor:
    """Gaussian noise relative to each feature's spread, and a fraction of the features replaced by their mean."""
    center = contexts.mean(dim=0)
    spread = contexts.std(dim=0, unbiased=False)
    jitter = torch.randn(contexts.shape, generator=generator, device=contexts.device)
    chance = torch.where(are_binary(contexts, slot_kinds), min(dropout, _BINARY_DROPOUT), dropout)
    is_kept = torch.rand(contexts.shape, generator=generator, device=contexts.device) >= chance
    return torch.where(is_kept, contexts + noise * spread * jitter, center)


def augmented_images(contexts: Tensor, generator: Generator) -> Tensor:
    """Rotation ≤ 15°, scale ± 15 %, shift ≤ 10 %; channel gain, bias and sign; pixel noise."""
    moved = _moved(contexts, generator)
    middle = moved.mean(dim=(2, 3), keepdim=True)
    bias = _LARGEST_BIAS * _spread(contexts, generator, *contexts.shape[:2], 1, 1)
    # In place, since memory bandwidth is the limit: (moved − middle)·gain + middle + bias + noise.
    gained = moved.sub_(middle).mul_(_gain(contexts, generator)).add_(middle + bias)
    return gained.add_(_noise(contexts, generator), alpha=_PIXEL_NOISE)


def _moved(contexts: Tensor, generator: Generator) -> Tensor:
    count = len(contexts)
    angle = _LARGEST_ANGLE * _spread(contexts, generator, count)
    scale = 1 + _SCALE_CHANGE * _spread(contexts, generator, count)
    offset = _LARGEST_SHIFT * _spread(contexts, generator, 2, count)
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    affine = torch.stack(
        [torch.stack([cosine, -sine, offset[0]], 1), torch.stack([sine, cosine, offset[1]], 1)], 1
    )
    grid = functional.affine_grid(affine, list(contexts.shape), align_corners=False)
    return functional.grid_sample(contexts, grid, padding_mode="reflection", align_corners=False)


def _gain(contexts: Tensor, generator: Generator) -> Tensor:
    """Gains of ± 0.5 to ± 1.5: one for each channel, or a smooth field of them for half of the images.

    Inverting light and dark keeps the class, also within parts of an image.
    """
    count, channels, *size = contexts.shape
    shape = (count, channels, _FIELD, _FIELD)
    gains = 1 + _GAIN_CHANGE * _spread(contexts, generator, *shape)
    gains = gains * _spread(contexts, generator, *shape).sign()
    field = (gains.flatten(2) @ _between_points(contexts, *size).T).view_as(contexts)
    is_field = _spread(contexts, generator, count, 1, 1, 1) > 0
    return torch.where(is_field, field, gains[:, :, :1, :1])


def _noise(contexts: Tensor, generator: Generator) -> Tensor:
    """Uniform noise of mean 0 and spread 1, from one byte per number: normal draws are much slower."""
    words = torch.empty(-(-contexts.numel() // 8), dtype=torch.int64, device=contexts.device)
    words.random_(-(2**63), None, generator=generator)
    levels = words.view(torch.int8)[: contexts.numel()].view_as(contexts)
    return (levels + 0.5) / _BYTE_SPREAD


def _between_points(contexts: Tensor, height: int, width: int) -> Tensor:
    """The bilinear weight of each field point at each pixel, (H·W, points), points at the corners.

    One product with it interpolates, which a GPU does faster than `functional.interpolate`.
    """
    points = torch.arange(_FIELD, device=contexts.device)
    rows, columns = (
        1 - (torch.linspace(0, _FIELD - 1, size, device=contexts.device)[:, None] - points).abs()
        for size in (height, width)
    )
    return torch.kron(rows.clamp_min(0.0), columns.clamp_min(0.0))


def _spread(contexts: Tensor, generator: Generator, *shape: int) -> Tensor:
    """Uniform numbers between −1 and 1, on the contexts' device."""
    return 2 * torch.rand(shape, generator=generator, device=contexts.device) - 1
