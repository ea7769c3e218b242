"""A TCP proxy that breaks connections on purpose."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Fault(Enum):
    """What happens to a connection when its client sends the marked bytes."""

    NONE = auto()
    RESET_BEFORE = auto()  # the server never sees them
    RESET_AFTER = auto()  # the server does, the client never hears of it


@dataclass
class FaultyProxy:
    """Forwards to a port of this machine; `fault` strikes once, at the next `mark`."""

    target_port: int
    mark: bytes = b"COMMIT"
    fault: Fault = Fault.NONE
    is_black_hole: bool = False
    port: int = 0
    strikes: int = 0
    _is_mute: bool = False
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["FaultyProxy"]:
        """Accept connections meanwhile."""
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            await self._serve((reader, writer))
        except (OSError, asyncio.CancelledError):
            pass  # a broken connection is what we are here for
        finally:
            writer.transport.abort()

    async def _serve(self, client: Streams) -> None:
        if self.is_black_hole:
            await client[0].read()  # accepts everything, answers nothing
            return
        server = await asyncio.open_connection("127.0.0.1", self.target_port)
        try:
            there = asyncio.create_task(self._pump(client[0], server[1]))
            back = asyncio.create_task(self._pump_back(server[0], client[1]))
            await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
        finally:
            server[1].transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            fault = self.fault if self.mark in data else Fault.NONE
            if fault is not Fault.NONE:
                self.fault = Fault.NONE
                self.strikes += 1
            if fault is Fault.RESET_BEFORE:
                return
            self._is_mute = self._is_mute or fault is Fault.RESET_AFTER
            sink.write(data)
            await sink.drain()

    async def _pump_back(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            if self._is_mute:  # the server has done it and says so: nobody hears it
                self._is_mute = False
                return
            sink.write(data)
            await sink.drain()
