"""Closes a connection so that its client can read the last answer.

A socket that is closed while its peer still sends is reset, and the peer may lose what it has not read
yet. So the server stops sending, goes on reading for a while, and only then closes (RFC 9112, section 9.6).
"""

import asyncio
from typing import Any, NamedTuple


class CloseLimits(NamedTuple):
    """How long, and how many bytes, a connection is read after its last answer."""

    seconds: float = 5.0
    max_bytes: int = 64 << 20


class StagedTransport(asyncio.Transport):
    """A transport that is closed in stages: answer, half-close, discard, close."""

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, limits: CloseLimits
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = limits.seconds
        self._bytes_left = limits.max_bytes
        self._timer: asyncio.TimerHandle | None = None
        self._is_half_closed = False
        self._has_eof = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send this, unless the connection is being closed."""
        if not self._is_half_closed:
            self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._is_half_closed or self._transport.is_closing()

    def close(self) -> None:
        """Send what was written, then read and discard what the client still sends, then close."""
        if self.is_closing():
            return
        if self._has_eof:
            self._transport.close()
            return
        self._is_half_closed = True
        self._transport.write_eof()
        self._transport.resume_reading()
        self._timer = self._loop.call_later(self._seconds, self.close_at_once)

    def close_at_once(self) -> None:
        """Send what was written and close, whatever the client still sends."""
        self._stop_timer()
        self._transport.close()

    def discard(self, size: int) -> None:
        """Count bytes that came after the last answer; close when they are too many."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            self.close_at_once()

    def note_eof(self) -> None:
        """The client sends no more, so there is nothing left to discard."""
        self._has_eof = True

    def note_lost(self) -> None:
        """The connection is gone."""
        self._stop_timer()

    def pause_reading(self) -> None:
        """Read nothing for now; the discarding stage always reads."""
        if not self._is_half_closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """What the transport knows of its socket."""
        return self._transport.get_extra_info(name, default)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
