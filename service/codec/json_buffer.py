"""JSON written into memory that is used again: to grow it anew costs as much as to write."""

from typing import Any

import msgspec

KEPT_BYTES = 1 << 20  # answers beyond it are rare, and their memory is better given back


class JsonBuffer:
    """An encoder with its buffer; for one thread."""

    def __init__(self) -> None:
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray()

    def encode(self, value: Any) -> bytes:
        """The value as JSON."""
        self._encoder.encode_into(value, self._buffer)
        content = bytes(self._buffer)
        if len(content) > KEPT_BYTES:
            self._buffer = bytearray()
        return content
