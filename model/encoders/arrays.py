"""The array operations that serving needs, for numpy on the CPU and torch on a GPU.

Everything else uses operators that both kinds of array share. For one row, numpy's call overhead
dominates, so these are the cheapest forms.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

# A numpy array or a torch tensor.
Array = Any

TINY = 1e-12  # keeps the norm of a zero vector from dividing by zero


class Arrays:
    """The operations on numpy arrays."""

    def copied(self, values: Array) -> Array:
        """The values in memory of their own."""
        return values.copy()

    def relu(self, values: Array) -> Array:
        """max(values, 0), in place."""
        return np.maximum(values, 0, out=values)

    def norms(self, vectors: Array) -> Array:
        """Euclidean norms over the last axis."""
        return np.sqrt(np.vecdot(vectors, vectors))

    def unit(self, vectors: Array) -> Array:
        """Vectors scaled to norm 1; zero vectors stay zero."""
        return vectors / (self.norms(vectors) + TINY)[..., None]

    def after_one(self, vectors: Array) -> Array:
        """Vectors (n, d) with a leading 1, (n, d + 1)."""
        joined = np.ones((len(vectors), vectors.shape[1] + 1), dtype=vectors.dtype)
        joined[:, 1:] = vectors
        return joined


class _Tensors(Arrays):
    """The same operations on torch tensors."""

    def copied(self, values: Array) -> Array:
        return values.clone()

    def relu(self, values: Array) -> Array:
        return torch.relu_(values)

    def norms(self, vectors: Array) -> Array:
        return torch.linalg.vector_norm(vectors, dim=-1)

    def after_one(self, vectors: Array) -> Array:
        return functional.pad(vectors, (1, 0), value=1.0)


def arrays_on(device: torch.device) -> Arrays:
    """The operations for arrays on this device."""
    return Arrays() if device.type == "cpu" else _Tensors()


def array_on(device: torch.device, values: Tensor | NDArray[Any]) -> Array:
    """A contiguous private copy of the values: a numpy array for the CPU, a tensor elsewhere."""
    tensor = torch.from_numpy(values) if isinstance(values, np.ndarray) else values.detach()
    copied = tensor.to(device).contiguous().clone()
    return copied.numpy() if device.type == "cpu" else copied
