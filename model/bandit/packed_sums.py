"""Sums over rounds, Σ zzᵀ and Σ rz of each model, kept and added to at half the cost.

Both are parts of Σ xxᵀ over x = (z, r), which is symmetric. Half of it is kept, diagonal by diagonal: the
place (o, i) holds Σ xᵢxⱼ with j = i + o, counted modulo d + 1, so that a round's share of all places is
x times windows of x. Each place gets its terms one after the other, as if it were added to alone.
"""

from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch

from model.rounds import Doubles, Floats, Integers

_TERM_NUMBERS = 1 << 17  # terms of a few rounds at a time, so that they stay in the cache


class PackedSums:
    """Σ zzᵀ and Σ rz of M models over latents of size d."""

    def __init__(self, model_count: int, latent_size: int) -> None:
        size = latent_size + 1
        self._sums: Doubles = np.zeros((model_count, size // 2 + 1, size))
        self._summed = torch.from_numpy(self._sums)  # the same memory
        self._terms = _Terms(0, latent_size)
        self._latent_size = latent_size

    @classmethod
    def of(cls, gram: Doubles, b: Doubles) -> Self:
        """Σ zzᵀ (M, d, d), symmetric, and Σ rz (M, d), packed."""
        packed = cls(*b.shape)
        flat, (of_gram, of_b) = packed._sums.reshape(len(b), -1), _places(b.shape[1])
        flat[:, of_gram], flat[:, of_b] = gram, b
        return packed

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy piece by piece would have two memories for what is one.
        return type(self).of, (self.gram(), self.b())

    def add(self, latents: Floats, models: Integers, rewards: Doubles) -> None:
        """Add rounds in their order; latents (n, d), models and rewards (n,)."""
        rows = max(1, _TERM_NUMBERS // self._sums[0].size)
        for start in range(0, len(latents), rows):
            some = slice(start, start + rows)
            part = latents[some]
            if len(self._terms) != len(part):
                self._terms = _Terms(len(part), self._latent_size)
            self._terms.add(self._summed, part, models[some], rewards[some])

    def gram(self, chosen: Integers | None = None) -> Doubles:
        """A copy of Σ zzᵀ, (M, d, d), of all models or the chosen ones."""
        return self._flat(chosen).take(_places(self._latent_size)[0], axis=1)

    def b(self, chosen: Integers | None = None) -> Doubles:
        """A copy of Σ rz, (M, d), of all models or the chosen ones."""
        return self._flat(chosen).take(_places(self._latent_size)[1], axis=1)

    def _flat(self, chosen: Integers | None) -> Doubles:
        sums = self._sums if chosen is None else self._sums[chosen]
        return sums.reshape(len(sums), -1)


class _Terms:
    """xxᵀ of so many rounds, packed as the sums are.

    Its memory is used again: making arrays costs a small batch as much as adding them up.
    """

    def __init__(self, count: int, latent_size: int) -> None:
        size = latent_size + 1
        # x = (z, r) and then its beginning again, so that x moved by any offset is a window of it.
        self._rounds: Doubles = np.empty((count, size + size // 2))
        self._latents, self._rewards = self._rounds[:, :latent_size], self._rounds[:, latent_size]
        self._first, self._again = self._rounds[:, : size // 2], self._rounds[:, size:]
        self._models: Integers = np.empty(count, dtype=np.int64)
        self._left = torch.from_numpy(self._rounds[:, None, :size])
        self._right = torch.from_numpy(self._rounds).unfold(1, size, 1)
        self._products = torch.empty((count, size // 2 + 1, size), dtype=torch.float64)
        self._chosen = torch.from_numpy(self._models)

    def __len__(self) -> int:
        return len(self._models)

    def add(self, sums: torch.Tensor, latents: Floats, models: Integers, rewards: Doubles) -> None:
        """Add the terms of exactly so many rounds to their models' sums.

        They are computed together and added one by one, in order: products of single numbers
        round the same either way, sums would not.
        """
        self._latents[:], self._rewards[:], self._models[:] = latents, rewards, models
        self._again[:] = self._first
        torch.mul(self._left, self._right, out=self._products)
        sums.index_add_(0, self._chosen, self._products)


@lru_cache(maxsize=8)
def _places(latent_size: int) -> tuple[Integers, Integers]:
    """Where the packed sums hold Σ zzᵀ (d, d) and Σ rz (d,)."""
    size = latent_size + 1
    i, j = np.arange(latent_size)[:, None], np.arange(size)
    offset = (j - i) % size
    # What lies further than half way round is the same number as (j, i), which lies nearer.
    places = np.where(offset <= size // 2, offset * size + i, (size - offset) * size + j)
    return places[:, :-1].copy(), places[:, -1].copy()
