"""Requests of archived decisions as numbers, which take a tenth of the space."""

import hashlib


def hashed(text: str) -> int:
    """64 bits of a hash, as databases store integers; equal ones are told apart in the file."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
