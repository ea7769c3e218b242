"""Random numbers without state: each is a function of the experiment's seed and a name.

A restart needs no saved generator state, and no draw depends on another.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np

from model.rounds import Doubles, Floats, Keys

_SCALE = 2.0**-53
_SEPARATOR = "\x1f"
_MASK = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
# Constants for arrays, made once: for a small batch, creating numpy scalars is a notable cost.
_FIRST_KEY, _SECOND_KEY = np.uint64(_FIRST), np.uint64(_SECOND)
_11, _27, _30, _31 = (np.uint64(bits) for bits in (11, 27, 30, 31))


def uniform(seed: int, *names: object) -> float:
    """A number in [0, 1) that depends on the seed and the names alone."""
    return (_digest(seed, names) >> 11) * _SCALE


def derived_seed(seed: int, *names: object) -> int:
    """A 63-bit seed for a generator, a function of the seed and the names."""
    return _digest(seed, names) >> 1


def generator(seed: int, *names: object) -> np.random.Generator:
    """A fresh numpy generator named within the experiment."""
    return np.random.Generator(np.random.Philox(derived_seed(seed, *names)))


def draw_keys(decision_ids: Iterable[str]) -> Keys:
    """The 64-bit keys by which decisions' arms are drawn, (n,)."""
    return np.array([bytes_key(each.encode()) for each in decision_ids], dtype=np.uint64)


def bytes_key(content: bytes) -> int:
    """The 64-bit key by which an arm is drawn for a context that has no decision."""
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "big")


def context_keys(contexts: Floats) -> Keys:
    """A 64-bit key of each context (n, *shape), (n,): equal contexts have equal keys."""
    unsigned = contexts + np.float32(0.0)  # -0.0 equals 0.0
    return np.array([bytes_key(each.tobytes()) for each in unsigned], dtype=np.uint64)


class KeyedUniforms:
    """Maps 64-bit keys to numbers in [0, 1) that depend on the seed and the key alone.

    It uses the SplitMix64 finaliser, which is cheap on whole arrays.
    """

    def __init__(self, seed: int, purpose: str) -> None:
        self._offset = derived_seed(seed, purpose)

    def one(self, key: int) -> float:
        """The number of one key."""
        return (_mixed(key ^ self._offset) >> 11) * _SCALE

    def many(self, keys: Keys) -> Doubles:
        """`one` of each key, (n,)."""
        return _unit_interval(_mixed_array(keys ^ np.uint64(self._offset)))


def _unit_interval(values: Keys) -> Doubles:
    """64 random bits each as a number in [0, 1)."""
    return np.asarray((values >> _11) * _SCALE, dtype=np.float64)


def _mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * _FIRST) & _MASK
    value = ((value ^ (value >> 27)) * _SECOND) & _MASK
    return value ^ (value >> 31)


def _mixed_array(values: Keys) -> Keys:
    values = (values ^ (values >> _30)) * _FIRST_KEY
    values = (values ^ (values >> _27)) * _SECOND_KEY
    return values ^ (values >> _31)


def _digest(seed: int, names: tuple[object, ...]) -> int:
    return bytes_key(_SEPARATOR.join((str(seed), *map(str, names))).encode())
