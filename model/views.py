"""Random views of contexts: changes that must not change the decision.

Vectors: noise and feature dropout. Images: small affine moves, gain, bias and sign of each
channel, noise. Views carry prior knowledge of the data; all are functions of a torch generator.
"""

import torch
from torch import Generator, Tensor
from torch.nn import functional


def random_view(contexts: Tensor, generator: Generator) -> Tensor:
    """One random view of each context, (n, *shape)."""
    if contexts.ndim == 4:
        return image_view(contexts, generator)
    return vector_view(contexts, generator)


def vector_view(
    contexts: Tensor, generator: Generator, noise: float = 0.1, dropout: float = 0.1
) -> Tensor:
    """Gaussian noise relative to each feature's spread, and features replaced by their mean."""
    center = contexts.mean(dim=0)
    spread = contexts.std(dim=0, unbiased=False)
    jitter = torch.randn(contexts.shape, generator=generator, device=contexts.device)
    is_kept = torch.rand(contexts.shape, generator=generator, device=contexts.device) >= dropout
    return torch.where(is_kept, contexts + noise * spread * jitter, center)


def image_view(contexts: Tensor, generator: Generator) -> Tensor:
    """Rotation ≤ 15°, scale ± 15 %, shift ≤ 10 %; channel gain, bias and sign; pixel noise."""

    def spread(*shape: int) -> Tensor:
        return 2 * torch.rand(shape, generator=generator, device=contexts.device) - 1

    count, channels = contexts.shape[:2]
    angle, scale = 0.26 * spread(count), 1 + 0.15 * spread(count)
    cosine, sine = scale * angle.cos(), scale * angle.sin()
    offset = 0.2 * spread(2, count)
    affine = torch.stack(
        [torch.stack([cosine, -sine, offset[0]], 1), torch.stack([sine, cosine, offset[1]], 1)], 1
    )
    grid = functional.affine_grid(affine, list(contexts.shape), align_corners=False)
    moved = functional.grid_sample(contexts, grid, padding_mode="reflection", align_corners=False)
    gain = (1 + 0.5 * spread(count, channels, 1, 1)) * spread(count, channels, 1, 1).sign()
    bias = 0.3 * spread(count, channels, 1, 1)
    middle = moved.mean(dim=(2, 3), keepdim=True)
    noise = torch.randn(contexts.shape, generator=generator, device=contexts.device)
    return (moved - middle) * gain + middle + bias + 0.05 * noise
