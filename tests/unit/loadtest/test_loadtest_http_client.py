"""The client of the load tests against a small server of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from loadtest.http_client import MAX_CONNECTING, Answer, HttpClient
from tests.support.waiting import eventually

REQUEST = b"POST /select HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
REFUSED = b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class Server:
    """Answers every request with the next of its answers; the last one stays."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.requests = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.requests += 1
                await self.gate.wait()
                writer.write(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def connected(
    server: Server, *, warm: int = 1, timeout_seconds: float = 30.0, max_connections: int = 8
) -> AsyncIterator[HttpClient]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client = HttpClient(
        f"http://127.0.0.1:{port}",
        timeout_seconds=timeout_seconds,
        max_connections=max_connections,
    )
    async with listening:
        await client.open(warm)
        yield client
        await client.close()


async def ask(
    client: HttpClient, count: int = 1, on_sent: Callable[[], None] = lambda: None
) -> list[Answer]:
    answers: list[Answer] = []
    for _ in range(count):
        client.send(REQUEST, answers.append, on_sent)
    await eventually(lambda: len(answers) == count)
    return answers


async def test_a_connection_is_used_again():
    server = Server(OK)
    async with connected(server) as client:
        for _ in range(3):
            assert await ask(client) == [Answer("200", b"good")]
    assert (server.connections, server.requests) == (1, 3)


@pytest.mark.parametrize("count", [5, 5 * MAX_CONNECTING])
async def test_requests_at_once_open_connections(count: int):
    server = Server(OK)
    async with connected(server, max_connections=count) as client:
        server.gate.clear()
        asking = asyncio.ensure_future(ask(client, count))
        await eventually(lambda: server.requests == count)
        server.gate.set()
        assert await asking == [Answer("200", b"good")] * count


async def test_connections_are_opened_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch):
    server, loop, opening = Server(OK), asyncio.get_running_loop(), [0]
    connect = loop.create_connection

    async def counted(*given: Any) -> Any:
        opening.append(opening[-1] + 1)
        try:
            return await connect(*given)
        finally:
            opening.append(opening[-1] - 1)

    async with connected(server, max_connections=4096) as client:
        monkeypatch.setattr(loop, "create_connection", counted)
        assert len(await ask(client, 2000)) == 2000
    assert server.requests == 2000
    assert max(opening) == MAX_CONNECTING


async def test_a_request_without_a_connection_waits_and_is_sent_late():
    server, sent = Server(OK), list[int]()
    async with connected(server, max_connections=1) as client:
        server.gate.clear()
        asking = asyncio.ensure_future(ask(client, 3, lambda: sent.append(server.requests)))
        await eventually(lambda: server.requests == 1)
        assert len(sent) == 1
        server.gate.set()
        assert len(await asking) == 3
    assert (server.connections, len(sent)) == (1, 3)


async def test_a_refusal_tells_whether_it_says_when_to_come_again():
    async with connected(Server(REFUSED, OK)) as client:
        assert await ask(client) == [Answer("503", b"", has_retry_after=True)]
        assert await ask(client) == [Answer("200", b"good")]


async def test_a_connection_that_the_server_closes_is_replaced():
    server = Server(LAST, OK)
    async with connected(server) as client:
        assert await ask(client) == [Answer("200")]
        assert await ask(client) == [Answer("200", b"good")]
    assert server.connections == 2


async def test_a_request_that_is_not_answered_is_given_up():
    server = Server(OK)
    async with connected(server, timeout_seconds=0.05) as client:
        server.gate.clear()
        assert await ask(client) == [Answer("timeout")]
        server.gate.set()


async def test_what_is_no_http_ends_the_connection():
    async with connected(Server(b"what?\r\n\r\n")) as client:
        assert await ask(client) == [Answer("disconnected")]


async def test_a_closed_server_is_an_answer_too():
    async with connected(Server(OK)) as client:
        pass
    assert await ask(client) == [Answer("disconnected")]
