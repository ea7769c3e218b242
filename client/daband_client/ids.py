"""Ids that make it safe to send a call twice."""

import hashlib
import secrets
import time
import uuid

MAX_BYTES = 128


def new_id() -> str:
    """A UUID of version 7: ids made later sort later, which databases like."""
    milliseconds = time.time_ns() // 1_000_000
    number = milliseconds << 80 | 7 << 76 | secrets.randbits(12) << 64
    return str(uuid.UUID(int=number | 2 << 62 | secrets.randbits(62)))


def part_id(whole: str, start: int) -> str:
    """The id of the part of a batch that begins at `start`: the same for the same batch."""
    found = f"{whole}/{start}"
    if len(found.encode()) <= MAX_BYTES:
        return found
    return f"{hashlib.sha256(whole.encode()).hexdigest()}/{start}"
