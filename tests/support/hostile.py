"""Bytes as an attacker or a broken wire changes them."""

import random


def mutated(content: bytes, rng: random.Random) -> bytes:
    """The content with one change: flipped bits, a cut end, more bytes, other bytes, or nothing of it."""
    kind = rng.randrange(5)
    if kind == 0 and content:
        return _flipped(content, rng, rng.randint(1, 8))
    if kind == 1:
        return content[: rng.randrange(len(content) + 1)]
    if kind == 2:
        return content + rng.randbytes(rng.randint(1, 64))
    if kind == 3:
        at = rng.randrange(len(content) + 1)
        return content[:at] + rng.randbytes(rng.randint(1, 16)) + content[at:]
    return rng.randbytes(rng.randint(0, 2 * len(content) + 1))


def _flipped(content: bytes, rng: random.Random, count: int) -> bytes:
    changed = bytearray(content)
    for _ in range(count):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)
