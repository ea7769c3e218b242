"""Signed feature hashing of named features into vectors of fixed length."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from model import Floats

SIZE = 64  # of the hashed vector
Token = tuple[str, float]


def tokens(features: Any, path: str = "") -> Iterator[Token]:
    """Every feature as (name, value); text is a feature with value 1, keys with `_` are skipped."""
    if isinstance(features, Mapping):
        for name, value in features.items():
            if not name.startswith("_"):
                yield from tokens(value, f"{path}/{name}")
    elif isinstance(features, list):
        for position, value in enumerate(features):
            yield from tokens(value, f"{path}/{position}" if _is_number(value) else path)
    elif isinstance(features, str):
        yield f"{path}={features}", 1.0
    elif isinstance(features, bool | int | float):
        yield path, float(features)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def hashed(features: list[Token], size: int = SIZE) -> Floats:
    """The vector of Σ ±value at each feature's hashed index."""
    vector = np.zeros(size)
    for name, value in features:
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        hash_ = int.from_bytes(digest, "big")
        vector[(hash_ >> 1) % size] += value if hash_ & 1 else -value
    return vector.astype(np.float32)
