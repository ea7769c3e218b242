"""A cheap HTTP/1.1 client: raw requests over connections that are kept open.

A general client costs about a millisecond a request and would be what a load test measures.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import httptools

TIMEOUT = "timeout"
DISCONNECTED = "disconnected"
SWEEP_SECONDS = 0.1
# At once: a pool that opens a connection for every waiting request makes the storm that it measures.
MAX_CONNECTING = 64
IDLE_SECONDS = 5.0  # well before a server closes it: that could meet a request on its way


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status or what went wrong instead."""

    outcome: str
    body: bytes = b""
    has_retry_after: bool = False


OnAnswer = Callable[[Answer], None]


class HttpClient:
    """Sends each request at once, on a connection that is idle or on a new one.

    Up to `max_connections`; a request beyond waits for one, and that is late (`validity.py`).
    """

    def __init__(self, url: str, *, timeout_seconds: float, max_connections: int) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "127.0.0.1", parts.port or 80)
        self._timeout_seconds = timeout_seconds
        self._max_connections = max_connections
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._connecting = 0
        self._waiting: deque[tuple[bytes, OnAnswer, Callable[[], None]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, connections: int) -> None:
        """Open some connections ahead."""
        self._loop = asyncio.get_running_loop()
        self._spawn(self._sweep())
        self._connecting += connections
        await asyncio.gather(*(self._connect() for _ in range(connections)))

    async def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        for connection in list(self._open):
            connection.close()
        await asyncio.sleep(0)

    def send(self, request: bytes, on_answer: OnAnswer, on_sent: Callable[[], None]) -> None:
        """Send a request; `on_sent` is called when it is sent, `on_answer` with its outcome."""
        if self._idle and not self._waiting:
            self._write(self._idle.pop(), request, on_answer, on_sent)
            return
        self._waiting.append((request, on_answer, on_sent))
        self._connect_for_waiting()

    def _write(
        self,
        connection: "_Connection",
        request: bytes,
        on_answer: OnAnswer,
        on_sent: Callable[[], None],
    ) -> None:
        on_sent()
        connection.ask(request, on_answer, self._loop.time() + self._timeout_seconds)

    def _connect_for_waiting(self) -> None:
        room = self._max_connections - len(self._open) - self._connecting
        if room > 0 and self._connecting < min(MAX_CONNECTING, len(self._waiting)):
            self._connecting += 1
            self._spawn(self._connect())

    async def _connect(self) -> None:
        """One of those that are counted as connecting."""
        connection = await self._connection()
        self._connecting -= 1
        if connection is None:
            self._refuse_one()
        else:
            self._open.add(connection)
            self._on_idle(connection)
        self._connect_for_waiting()

    async def _connection(self) -> "_Connection | None":
        """A new one; none if there is none to be had."""
        try:
            async with asyncio.timeout(self._timeout_seconds):
                _, connection = await self._loop.create_connection(
                    lambda: _Connection(self._on_idle, self._on_lost), *self._address
                )
        except OSError:
            return None
        return connection

    def _refuse_one(self) -> None:
        if self._waiting:
            _, on_answer, on_sent = self._waiting.popleft()
            on_sent()
            on_answer(Answer(DISCONNECTED))

    def _on_idle(self, connection: "_Connection") -> None:
        if self._waiting:
            self._write(connection, *self._waiting.popleft())
        else:
            connection.idle_since = self._loop.time()
            self._idle.append(connection)

    def _on_lost(self, connection: "_Connection") -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)
        self._connect_for_waiting()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _sweep(self) -> None:
        """One look at all connections now and then is cheaper than a timer a request."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = self._loop.time()
            for connection in [each for each in self._open if each.is_overdue(now)]:
                connection.give_up(TIMEOUT)
            while self._idle and self._idle[0].idle_since < now - IDLE_SECONDS:
                connection = self._idle.popleft()  # the longest idle: they are taken from the end
                self._open.discard(connection)
                connection.close()


class _Connection(asyncio.Protocol):
    """One connection, with at most one request at work."""

    def __init__(
        self, on_idle: Callable[["_Connection"], None], on_lost: Callable[["_Connection"], None]
    ) -> None:
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._on_answer: OnAnswer | None = None
        self._deadline = 0.0
        self.idle_since = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._body = b""
        self._has_retry_after = False

    def ask(self, request: bytes, on_answer: OnAnswer, deadline: float) -> None:
        self._on_answer = on_answer
        self._deadline = deadline
        self._transport.write(request)

    def is_overdue(self, now: float) -> bool:
        return self._on_answer is not None and now > self._deadline

    def give_up(self, outcome: str) -> None:
        """Answer for the server; what it may still say must not meet the next request."""
        self._finish(Answer(outcome))
        self._transport.abort()

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass of it

    def connection_lost(self, error: Exception | None) -> None:
        self._finish(Answer(DISCONNECTED))
        self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.give_up(DISCONNECTED)

    def on_message_begin(self) -> None:
        self._body = b""
        self._has_retry_after = False

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == b"retry-after":
            self._has_retry_after = True

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        status = str(self._parser.get_status_code())
        self._finish(Answer(status, self._body, self._has_retry_after))
        if self._parser.should_keep_alive():
            self._on_idle(self)
        else:
            self._transport.close()

    def _finish(self, answer: Answer) -> None:
        on_answer, self._on_answer = self._on_answer, None
        if on_answer is not None:
            on_answer(answer)
