"""A connection without a socket: a test says which bytes the server receives together, and sees what it sends."""

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from service.http.protocol import guarded_protocol

FOREVER = 3600.0
TICKS = 200  # of the event loop: without sockets, an answer takes a few


class RecordingTransport(asyncio.Transport):
    """A transport that remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.has_sent_eof = False
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.has_sent_eof, "nothing can be sent after the end"
        self.sent += bytes(data)

    def write_eof(self) -> None:
        self.has_sent_eof = True

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Connection:
    """The server's protocol on such a transport."""

    def __init__(self, app: ASGIApp, fast_path: Any = None) -> None:
        protocol = guarded_protocol(FOREVER, lambda url, headers: None, fast_path)
        config = uvicorn.Config(app, http=protocol, log_config=None)
        config.load()
        self.transport = RecordingTransport()
        make: Any = config.http_protocol_class
        self.protocol = make(config, ServerState(), {})
        self.protocol.connection_made(self.transport)

    async def receive(self, *segments: bytes) -> bytes:
        """What has been sent once the server has received these bytes, segment by segment."""
        for segment in segments:
            self.protocol.data_received(segment)
            await asyncio.sleep(0)
        return await self.after_ticks()

    async def receive_eof(self) -> bytes:
        """The client has closed its sending side."""
        if not self.protocol.eof_received():
            self.transport.close()
        return await self.after_ticks()

    async def after_ticks(self) -> bytes:
        """What has been sent after some ticks of the event loop."""
        for _ in range(TICKS):
            await asyncio.sleep(0)
        return self.transport.sent

    async def answered(self) -> bytes:
        """What has been sent once there is something."""
        for _ in range(TICKS):
            if self.transport.sent:
                return self.transport.sent
            await asyncio.sleep(0)
        raise AssertionError("there is no answer")

    @property
    def is_over(self) -> bool:
        """Whether the server has sent its last byte."""
        return self.transport.has_sent_eof or self.transport.is_closed

    def lose(self) -> None:
        """The connection is gone."""
        self.transport.close()
        self.protocol.connection_lost(None)
