"""Rules of HTTP/1.1 (RFC 9112) that parser and server leave open: request heads, and closing a connection.

Closing a socket while the peer still sends resets it, and the peer may lose unread answers. So the server
stops sending, goes on reading for a while, and only then closes (section 9.6).
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import httptools

Header = tuple[bytes, bytes]
VERSIONS = frozenset({"1.0", "1.1"})
ONCE = (b"host", b"transfer-encoding")
# uri-host [ ":" port ] of RFC 3986; empty if the target has no authority.
HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%~_-]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
MAX_HEAD_BYTES = 64 << 10
LEAST_REQUEST_LINE, LEAST_FIELD_LINE, END = b"  HTTP/1.1\r\n", b": \r\n", b"\r\n"
# How long and how much a connection is read after its last answer.
DISCARDING_SECONDS = 5.0
MAX_DISCARDED_BYTES = 64 << 20


class BadHead(Exception):  # noqa: N818 - named after its cause
    """An invalid request head: it is refused with a status, and the connection is closed."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


def checked_fields(version: str, headers: Sequence[Header]) -> dict[bytes, bytes]:
    """The headers by name; raises `BadHead` for a version, Host or coding against RFC 9112."""
    if version not in VERSIONS:
        raise BadHead(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    fields = dict(headers)
    host = fields.get(b"host")
    is_valid = version == "1.0" if host is None else HOST.fullmatch(host) is not None
    if not is_valid:
        raise BadHead(HTTPStatus.BAD_REQUEST)
    if fields.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
        raise BadHead(HTTPStatus.NOT_IMPLEMENTED)
    names = [name for name, _ in headers]
    if len(fields) < len(names) and any(names.count(name) > 1 for name in ONCE):
        raise BadHead(HTTPStatus.BAD_REQUEST)
    return fields


def check_size(method: bytes, url: bytes, headers: Sequence[Header]) -> None:
    """Raise `BadHead` for a request head longer than `MAX_HEAD_BYTES`."""
    size = len(method) + len(url) + len(LEAST_REQUEST_LINE) + len(END)
    size += sum(len(name) + len(value) + len(LEAST_FIELD_LINE) for name, value in headers)
    if size > MAX_HEAD_BYTES:
        raise BadHead(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)


def check_target(url: bytes) -> None:
    """Raise `BadHead` for a request target without a path."""
    if url.startswith(b"/"):
        return
    try:
        path = httptools.parse_url(url).path
    except httptools.HttpParserInvalidURLError:
        path = None
    if path is None:
        raise BadHead(HTTPStatus.BAD_REQUEST)


def expects_continue(version: str, fields: Mapping[bytes, bytes]) -> bool:
    """Whether the client waits for `100 Continue`; HTTP/1.0 clients never do."""
    return fields.get(b"expect", b"").lower() == b"100-continue" and version == "1.1"


def head_without_upgrade(
    method: bytes, url: bytes, version: str, headers: Sequence[Header]
) -> bytes:
    """The request head as bytes, without its Upgrade header."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode())]
    lines += [b"%b: %b" % each for each in headers if each[0] != b"upgrade"]
    return b"\r\n".join([*lines, b"", b""])


class StagedTransport(asyncio.Transport):
    """A transport that closes in stages: answer, half-close, discard, close."""

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        max_bytes: int = MAX_DISCARDED_BYTES,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._bytes_left = max_bytes
        self._timer: asyncio.TimerHandle | None = None
        self._is_half_closed = False
        self._has_eof = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data, unless the connection is being closed."""
        if not self._is_half_closed:
            self._transport.write(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._is_half_closed or self._transport.is_closing()

    def close(self) -> None:
        """Send all written data, then discard what the client still sends, then close."""
        if self.is_closing():
            return
        if self._has_eof:
            self._transport.close()
            return
        self._is_half_closed = True
        self._transport.write_eof()
        self._transport.resume_reading()
        self._timer = self._loop.call_later(DISCARDING_SECONDS, self.close_at_once)

    def close_at_once(self) -> None:
        """Send all written data and close without reading further."""
        self._stop_timer()
        self._transport.close()

    def discard(self, size: int) -> None:
        """Count bytes received after the last answer; close if there are too many."""
        self._bytes_left -= size
        if self._bytes_left < 0:
            self.close_at_once()

    def note_eof(self) -> None:
        """The client has closed its sending side, so there is nothing left to discard."""
        self._has_eof = True

    def note_lost(self) -> None:
        """The connection is gone."""
        self._stop_timer()

    def pause_reading(self) -> None:
        """Pause reading, except in the discarding stage."""
        if not self._is_half_closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Information about the transport's socket."""
        return self._transport.get_extra_info(name, default)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
