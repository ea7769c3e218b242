"""The deadline for headers, on a real socket with an app that only counts."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import ReferenceType, ref

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from service.express_lane import WHOLE_ANSWER, WHOLE_BODY
from service.http_protocol import Excess, Headers, guarded_protocol
from tests.storage_tools import eventually

PATIENCE_SECONDS = 60.0
SHORT, LONG = 0.2, 3600.0
REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class App:
    """Answers when the gate is open."""

    def __init__(self) -> None:
        self.asked = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        await self.gate.wait()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


class Connection:
    """A client that says what it is told to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def say(self, words: bytes) -> None:
        self._writer.write(words)

    async def until(self, words: bytes) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._reader.readuntil(words)

    async def rest(self) -> bytes:
        """All that comes before the server hangs up."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self._reader.read()

    @property
    def is_open(self) -> bool:
        return not self._reader.at_eof()


@asynccontextmanager
async def connected(
    app: ASGIApp, header_seconds: float, excess: Excess = lambda url, headers: None
) -> AsyncIterator[Connection]:
    protocol = guarded_protocol(header_seconds, excess)
    # Whoever is hung up on must not owe it to uvicorn's own patience.
    config = uvicorn.Config(app, http=protocol, log_config=None, timeout_keep_alive=3600)
    config.load()
    make: Any = config.http_protocol_class
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: make(config, state, {}), "127.0.0.1", 0)
    async with server:
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address)
        yield Connection(reader, writer)
        writer.close()
        await writer.wait_closed()


def problem(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    found: dict[str, Any] = json.loads(body)
    assert found["request_id"].encode() in head
    assert found["instance"].endswith(found["request_id"])
    return found


async def test_headers_that_do_not_end_are_answered_with_408():
    app = App()
    async with connected(app, SHORT) as client:
        client.say(b"GET / HTTP/1.1\r\nHost: here\r\nX-")
        assert problem(await client.rest())["status"] == 408
    assert app.asked == 0


async def test_bytes_that_drip_in_do_not_move_the_deadline():
    async with connected(App(), SHORT) as client:
        client.say(b"GET / HTTP/1.1\r\n")

        async def drip() -> None:
            while True:
                client.say(b"X-A: b\r\n")
                await asyncio.sleep(SHORT / 8)

        dripping = asyncio.create_task(drip())
        answer = await client.rest()
        dripping.cancel()
    assert problem(answer)["title"] == "Request Timeout"


async def test_who_says_nothing_is_hung_up_on():
    async with connected(App(), SHORT) as client:
        assert await client.rest() == b""


async def test_the_next_request_of_a_connection_has_a_deadline_of_its_own():
    async with connected(App(), SHORT) as client:
        client.say(REQUEST)
        assert b"200 OK" in await client.until(b"ok")
        client.say(b"GET / HTTP/1.1\r\nHost:")
        assert problem(await client.rest())["status"] == 408


async def test_headers_in_pieces_are_read():
    async with connected(App(), LONG) as client:
        for piece in (REQUEST[:5], REQUEST[5:20], REQUEST[20:]):
            client.say(piece)
            await asyncio.sleep(0)
        assert b"200 OK" in await client.until(b"ok")


async def test_an_answer_that_takes_long_is_not_cut_by_the_next_headers():
    app = App()
    app.gate.clear()
    async with connected(app, SHORT / 4) as client:
        client.say(REQUEST + b"GET / HTTP/1.1\r\nHost:")
        await asyncio.sleep(SHORT)  # the deadline passes several times
        app.gate.set()
        answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 200 OK")
    assert problem(answer[answer.index(b"ok") + 2 :])["status"] == 408


@pytest.mark.parametrize("words", [b"HELO there\r\n\r\n", b"GET / HTTP/1.1\r\n\xff: \x00\r\n\r\n"])
async def test_what_is_no_http_is_refused_in_our_shape(words: bytes):
    async with connected(App(), LONG) as client:
        client.say(words)
        assert problem(await client.rest())["status"] == 400


REFUSAL = b"content-length: 4\r\n\r\nfull"
POST = b"POST /select?a=b HTTP/1.1\r\nHost: here\r\nContent-Length: 6\r\n\r\n"


class Full:
    """Refuses while it is full, and remembers whom."""

    def __init__(self) -> None:
        self.is_full = True
        self.refused: list[bytes] = []

    def __call__(self, url: bytes, headers: Headers) -> bytes | None:
        if not self.is_full:
            return None
        self.refused.append(url)
        return REFUSAL


async def test_a_request_in_excess_never_reaches_the_app_and_the_connection_goes_on():
    app, full = App(), Full()
    async with connected(app, LONG, full) as client:
        for _ in range(2):
            client.say(POST + b"values")
            answer = await client.until(b"full")
            assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert app.asked == 0
        full.is_full = False
        client.say(POST + b"values")
        assert b"200 OK" in await client.until(b"ok")
    assert full.refused == [b"/select?a=b"] * 2


async def test_a_refusal_waits_for_the_end_of_its_request():
    app, full = App(), Full()
    async with connected(app, LONG, full) as client:
        client.say(POST + b"val")
        await eventually(lambda: bool(full.refused))
        full.is_full = False  # it was refused when its headers came
        client.say(b"ues" + REQUEST)
        answer = await client.until(b"ok")
    assert answer.index(b"503") < answer.index(b"full") < answer.index(b"200 OK")
    assert app.asked == 1


async def test_a_refused_request_that_does_not_end_is_hung_up_on():
    async with connected(App(), SHORT, Full()) as client:
        client.say(POST + b"val")
        assert await client.rest() == b""


async def test_who_wants_no_more_is_hung_up_on_after_the_refusal():
    async with connected(App(), LONG, Full()) as client:
        client.say(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert (await client.rest()).endswith(b"full")


@pytest.mark.parametrize("header", [b"Expect: 100-continue", b"Upgrade: x\r\nConnection: upgrade"])
async def test_what_needs_more_than_an_answer_takes_the_long_way(header: bytes):
    app, full = App(), Full()
    async with connected(app, LONG, full) as client:
        client.say(b"GET / HTTP/1.1\r\n" + header + b"\r\n\r\n")
        assert b"200 OK" in await client.until(b"ok")
    assert full.refused == []


async def test_a_request_behind_another_is_not_answered_before_it():
    app, room = App(), iter([None])  # for the first alone
    app.gate.clear()
    async with connected(app, LONG, lambda url, headers: next(room, REFUSAL)) as client:
        client.say(REQUEST + REQUEST)
        await eventually(lambda: app.asked == 1)
        app.gate.set()
        for _ in range(2):
            assert b"200 OK" in await client.until(b"ok")


class Whole(App):
    """Answers what it is asked, at once where the server takes that."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[bool] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.gate.wait()
        body = scope["path"].encode()
        head = b"content-length: %d\r\n" % len(body)
        self.taken.append(scope["extensions"][WHOLE_ANSWER]["send"](200, head, body))
        if not self.taken[-1]:
            await super().__call__(scope, receive, send)


async def test_whole_answers_come_in_order_and_the_connection_goes_on():
    app = Whole()
    app.gate.clear()
    async with connected(app, LONG) as client:
        client.say(b"".join(b"GET /no-%d HTTP/1.1\r\n\r\n" % number for number in range(3)))
        app.gate.set()
        for number in range(3):
            assert await client.until(b"/no-%d" % number) == (
                b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n/no-%d" % number
            )
        client.say(REQUEST.replace(b"/", b"/again", 1))
        assert b"200 OK" in await client.until(b"/again")
    assert app.taken == [True] * 4


async def test_a_whole_answer_leaves_no_work_for_the_garbage_collector():
    seen: list[ReferenceType[Any]] = []

    class Remembering(Whole):
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            seen.append(ref(receive.__self__))  # type: ignore[attr-defined]
            await super().__call__(scope, receive, send)

    gc.disable()
    try:
        async with connected(Remembering(), LONG) as client:
            for name in (b"/first", b"/second"):
                client.say(REQUEST.replace(b"/", name, 1))
                await client.until(name)
            assert seen[0]() is None
    finally:
        gc.enable()


async def test_who_wants_no_more_is_hung_up_on_after_a_whole_answer():
    async with connected(Whole(), LONG) as client:
        client.say(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert b"connection: close\r\n\r\n/" in await client.rest()


async def test_a_whole_answer_is_not_for_who_is_slow_to_take_the_last_one():
    app = Whole()
    large = b"/" + b"x" * 60_000  # some of them are more than the socket's buffers hold
    async with connected(app, LONG) as client:
        while all(app.taken):
            client.say(b"GET " + large + b" HTTP/1.1\r\n\r\n")
            await asyncio.sleep(0)
        client.say(b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n")
        assert b"\r\n\r\nok" in await client.rest()


class WholeBodies:
    """Takes what body is there at once, and asks for it by messages where there is none."""

    def __init__(self) -> None:
        self.at_once: list[bytes | None] = []
        self.by_messages: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.at_once.append(scope["extensions"][WHOLE_BODY]["receive"]())
        found = b""
        while True:
            message = await receive()
            found += message["body"]
            if not message["more_body"]:
                break
        self.by_messages.append(found)
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


def posted(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_a_body_that_is_there_can_be_taken_at_once_and_still_be_asked_for():
    app = WholeBodies()
    async with connected(app, LONG) as connection:
        for body in (b"first", b"", b"third"):
            connection.say(posted(body))
            await connection.until(b"ok")
    assert app.at_once == app.by_messages == [b"first", b"", b"third"]


async def test_a_body_in_parts_is_asked_for():
    app = WholeBodies()
    async with connected(app, LONG) as connection:
        request = posted(b"beginning and end")
        connection.say(request[:-3])
        await eventually(lambda: bool(app.at_once))
        connection.say(request[-3:])
        await connection.until(b"ok")
    assert (app.at_once, app.by_messages) == ([None], [b"beginning and end"])


async def test_a_large_body_is_asked_for_so_that_reading_goes_on():
    app = WholeBodies()
    body = bytes(1 << 20)
    async with connected(app, LONG) as connection:
        for _ in range(2):
            connection.say(posted(body))
            await connection.until(b"ok")
    assert app.by_messages == [body] * 2
    assert set(app.at_once) <= {None, body}
