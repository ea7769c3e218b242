"""UCB scores on a GPU in one kernel: only the norms of L⁻¹φ are written to memory.

L⁻¹φ has d numbers for each arm of each context; reading them back would cost more than computing
them. Products run on tensor cores as three TF32 parts, which is as exact as float32. The kernel needs
triton, which comes with torch's CUDA builds.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 128  # contexts of a program
_COLUMNS = 64  # entries of L⁻¹φ at a time; also the entries of φ at a time


def fused_scores(latents: Tensor, weights: Tensor, models: int) -> Tensor:
    """φᵀθ, α‖L⁻¹φ‖ and their sum, (3, n, M), of latents (n, d).

    `weights` (d, M·(1 + d)) are θ of all models, then (αL⁻¹)ᵀ of all models; only upper triangles are
    read.
    """
    count, size = latents.shape
    scores = torch.empty((3, count, models), device=latents.device, dtype=torch.float32)
    grid = (models, triton.cdiv(count, _ROWS))
    width = min(_COLUMNS, max(16, triton.next_power_of_2(size)))
    _kernel[grid](latents.contiguous(), weights, scores, count, models, size, _ROWS, width)
    return scores


@triton.jit(do_not_specialize=["count", "models"])  # type: ignore[untyped-decorator]
def _kernel(  # noqa: PLR0913 - a kernel takes only scalars and pointers
    latents: tl.tensor,
    weights: tl.tensor,
    scores: tl.tensor,
    count: tl.tensor,
    models: tl.tensor,
    size: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    model = tl.program_id(0)
    rows = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    steps = tl.arange(0, WIDTH)
    has_row = rows[:, None] < count
    stride = models * (1 + size)
    root = weights + models + model * size
    squares = tl.zeros((ROWS,), dtype=tl.float32)
    mean = tl.zeros((ROWS,), dtype=tl.float32)
    for first in range(0, size, WIDTH):
        columns = first + steps
        spread = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
        for start in range(0, first + WIDTH, WIDTH):  # L⁻¹ is lower triangular
            inner = start + steps
            z = tl.load(
                latents + rows[:, None].to(tl.int64) * size + inner[None, :],
                mask=has_row & (inner[None, :] < size),
                other=0.0,
            )
            part = tl.load(
                root + inner[:, None].to(tl.int64) * stride + columns[None, :],
                mask=(inner[:, None] < size) & (columns[None, :] < size),
                other=0.0,
            )
            spread = tl.dot(z, part, spread, input_precision="tf32x3")
            if start == first:  # each part of φ once
                theta = tl.load(
                    weights + inner.to(tl.int64) * stride + model, mask=inner < size, other=0.0
                )
                mean += tl.sum(z * theta[None, :], axis=1)
        squares += tl.sum(spread * spread, axis=1)
    bonus = tl.sqrt(squares)
    place = scores + rows.to(tl.int64) * models + model
    plane = count.to(tl.int64) * models
    tl.store(place, mean, mask=rows < count)
    tl.store(place + plane, bonus, mask=rows < count)
    tl.store(place + 2 * plane, mean + bonus, mask=rows < count)
