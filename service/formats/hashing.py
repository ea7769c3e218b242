"""Named features of any kind as vectors of one length, by signed feature hashing."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from model import Floats

SIZE = 64  # of the hashed vector
Token = tuple[str, float]


def tokens(features: Any, path: str = "") -> Iterator[Token]:
    """Every feature as (name, value): text counts 1 under its own name, keys with `_` are none."""
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
    """Σ ±value at each feature's place."""
    vector = np.zeros(size)
    for name, value in features:
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        place = int.from_bytes(digest, "big")
        vector[(place >> 1) % size] += value if place & 1 else -value
    return vector.astype(np.float32)
