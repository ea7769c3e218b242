"""A server on a loopback socket, and a client that sends bytes as a test says."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import uvicorn
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from tests.support.http.cases import Case
from tests.support.waiting import PATIENCE_SECONDS

Address = tuple[str, int]


class Response(NamedTuple):
    """An answer as it was sent."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def content(self) -> Any:
        return json.loads(self.body)


class RawServer:
    """Runs a protocol class on a socket, and knows how many bytes of each client it has received."""

    def __init__(self) -> None:
        self.address: Address = ("", 0)
        self.protocols: dict[Address, Any] = {}
        self.received: dict[Address, int] = {}

    def counting(self, protocol_class: Any) -> Any:
        """The protocol class with a count of what it receives."""
        server = self

        class Counting(protocol_class):  # type: ignore[misc]
            def connection_made(self, transport: asyncio.Transport) -> None:
                super().connection_made(transport)
                server.protocols[self.client] = self
                server.received[self.client] = 0

            def data_received(self, data: bytes) -> None:
                server.received[self.client] += len(data)
                super().data_received(data)

            def connection_lost(self, error: Exception | None) -> None:
                super().connection_lost(error)
                del server.protocols[self.client], server.received[self.client]

        return Counting

    async def answers(self, case: Case, *, half_closes: bool = True) -> list[Response]:
        """What a client reads that sends this, until the server closes the connection."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return parsed(await self._exchanged(case, half_closes))
        except (TimeoutError, ConnectionError) as error:
            raise AssertionError(f"{error!r}\n{case}") from error

    async def _exchanged(self, case: Case, half_closes: bool) -> bytes:
        loop = asyncio.get_running_loop()
        with socket.create_connection(self.address) as client:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            name, sent = client.getsockname(), 0
            await _until(lambda: name in self.protocols)
            for segment in case.segments:
                await loop.sock_sendall(client, segment)
                sent += len(segment)
                await _until(partial(self._has_taken, name, sent))
            if half_closes:
                client.shutdown(socket.SHUT_WR)
            read = b""
            while piece := await loop.sock_recv(client, 1 << 16):
                read += piece
        await _until(lambda: name not in self.protocols)
        return read

    def _has_taken(self, name: Address, size: int) -> bool:
        """Whether the server has received so much, or reads nothing for now."""
        protocol = self.protocols.get(name)
        return protocol is None or self.received[name] == size or protocol.flow.read_paused


async def _until(condition: Callable[[], bool]) -> None:
    while True:
        if condition():
            return
        await asyncio.sleep(0)


@asynccontextmanager
async def serving(
    app: ASGIApp, protocol_class: type[asyncio.Protocol], state: Mapping[str, Any] | None = None
) -> AsyncIterator[RawServer]:
    """The app behind a protocol class, on a loopback socket; no connection is closed for being idle."""
    server = RawServer()
    config = uvicorn.Config(app, ws="none", log_config=None, timeout_keep_alive=3600)
    config.load()
    make, known, shared = server.counting(protocol_class), ServerState(), dict(state or {})
    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: make(config, known, shared), "127.0.0.1", 0)
    async with listener:
        server.address = listener.sockets[0].getsockname()
        yield server


def parsed(content: bytes) -> list[Response]:
    """The answers of a connection, whole and nothing else; without `100 Continue`."""
    found: list[Response] = []
    while content:
        head, separator, content = content.partition(b"\r\n\r\n")
        assert separator, f"no head of an answer: {head!r}"
        line, *lines = head.decode("latin-1").split("\r\n")
        assert line.startswith("HTTP/1.1 "), line
        headers = dict(each.split(": ", 1) for each in lines)
        assert len(headers) == len(lines), f"a header is there twice: {lines}"
        status = int(line.split(" ")[1])
        if status == 100:
            continue
        length = int(headers["content-length"])
        body, content = content[:length], content[length:]
        assert len(body) == length, f"the answer ends early: {line}"
        found.append(Response(status, headers, body))
    return found
