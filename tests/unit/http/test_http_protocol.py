"""Deadlines, refusals, the order of answers and the fast path, with apps that only count."""

import asyncio
import gc
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httptools
import pytest
import uvicorn
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.requirements import Requirement
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from service.codec.wire import ALWAYS, OVERRIDABLE, encoded
from service.http.fast_path import Exchange
from service.http.protocol import Excess, Headers, guarded_protocol
from service.http.rfc9112 import MAX_HEAD_BYTES
from tests.support.http.connections import Connection
from tests.support.http.timers import VirtualTimers
from tests.support.waiting import PATIENCE_SECONDS, eventually

ROOT = Path(__file__).parents[3]
SHORT, LONG = 1.0, 3600.0
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


class Client:
    """A raw connection to the server; `timers` are the server's."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        timers: VirtualTimers,
        state: ServerState,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.timers = timers
        self._state = state

    async def say_and_wait(self, words: bytes, header_count: int = 0) -> None:
        """Send the first part of a request head and wait until the server has read it."""
        self._writer.write(words)
        await eventually(lambda: self._is_in_head(header_count))

    def _is_in_head(self, header_count: int) -> bool:
        return any(
            each._is_in_head and len(each.headers) >= header_count  # type: ignore[union-attr]
            for each in self._state.connections
        )

    def say(self, words: bytes) -> None:
        self._writer.write(words)

    async def say_all(self, words: bytes) -> None:
        """Send all of it before anything is read."""
        self._writer.write(words)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await self._writer.drain()

    def say_no_more(self) -> None:
        self._writer.write_eof()

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
    app: ASGIApp,
    header_seconds: float,
    excess: Excess = lambda url, headers: None,
    *,
    fast_path: Any = None,
    state: ServerState | None = None,
    keep_alive_seconds: float = 3600,
) -> AsyncIterator[Client]:
    protocol = guarded_protocol(header_seconds, excess, fast_path)
    # Whoever is hung up on must not owe it to uvicorn's own patience.
    config = uvicorn.Config(app, http=protocol, log_config=None)
    config.timeout_keep_alive = keep_alive_seconds  # type: ignore[assignment]  # fractions, too
    config.load()
    make: Any = config.http_protocol_class
    known = state or ServerState()
    loop = asyncio.get_running_loop()
    timers = VirtualTimers(loop)
    server = await loop.create_server(lambda: make(config, known, {}, timers), "127.0.0.1", 0)
    async with server:
        address = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(*address)
        await eventually(lambda: bool(known.connections))
        yield Client(reader, writer, timers, known)
        writer.close()
        await writer.wait_closed()
        await eventually(lambda: not known.connections)


def problem(answer: bytes) -> dict[str, Any]:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert encoded(ALWAYS) + encoded(OVERRIDABLE) in head + b"\r\n"
    assert head.endswith(b"connection: close") or b"connection: close\r\n" in head
    found: dict[str, Any] = json.loads(body)
    assert found["request_id"].encode() in head
    assert found["instance"].endswith(found["request_id"])
    return found


async def test_headers_that_do_not_end_are_answered_with_408():
    app = App()
    async with connected(app, SHORT) as client:
        await client.say_and_wait(b"GET / HTTP/1.1\r\nHost: here\r\nX-")
        client.timers.advance(SHORT)
        assert problem(await client.rest())["status"] == 408
    assert app.asked == 0


async def test_bytes_that_drip_in_do_not_move_the_deadline():
    async with connected(App(), SHORT) as client:
        await client.say_and_wait(b"GET / HTTP/1.1\r\n")
        for number in range(1, 8):
            client.timers.advance(SHORT / 8)
            await client.say_and_wait(
                b"X-A: b\r\n", number - 1
            )  # the last is not known to have ended
        client.timers.advance(SHORT / 8)
        answer = await client.rest()
    assert problem(answer)["title"] == "Request Timeout"


async def test_a_silent_connection_is_closed():
    async with connected(App(), SHORT) as client:
        client.timers.advance(SHORT)
        assert await client.rest() == b""


async def test_the_next_request_of_a_connection_has_a_deadline_of_its_own():
    async with connected(App(), SHORT) as client:
        client.say(REQUEST)
        assert b"200 OK" in await client.until(b"ok")
        client.timers.advance(10 * SHORT)  # between two requests there is no deadline
        await client.say_and_wait(b"GET / HTTP/1.1\r\nHost:")
        client.timers.advance(SHORT)
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
    async with connected(app, SHORT) as client:
        await client.say_and_wait(REQUEST + b"GET / HTTP/1.1\r\nHost:")
        client.timers.advance(4 * SHORT)  # the deadline passes several times
        app.gate.set()
        assert (await client.until(b"ok")).startswith(b"HTTP/1.1 200 OK")
        client.timers.advance(SHORT)
        assert problem(await client.rest())["status"] == 408


@pytest.mark.parametrize("words", [b"HELO there\r\n\r\n", b"GET / HTTP/1.1\r\n\xff: \x00\r\n\r\n"])
async def test_what_is_no_http_is_refused_in_our_shape(words: bytes):
    async with connected(App(), LONG) as client:
        client.say(words)
        assert problem(await client.rest())["status"] == 400


REFUSAL = b"content-length: 4\r\n\r\nfull"
POST = b"POST /select?a=b HTTP/1.1\r\nHost: here\r\nContent-Length: 6\r\n\r\n"


class Full:
    """Refuses requests while it is full, and records them."""

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
    full = Full()
    async with connected(App(), SHORT, full) as client:
        client.say(POST + b"val")
        await eventually(lambda: bool(full.refused))
        client.timers.advance(SHORT)
        assert await client.rest() == b""


async def test_a_connection_that_asked_to_close_is_closed_after_the_refusal():
    async with connected(App(), LONG, Full()) as client:
        client.say(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        assert (await client.rest()).endswith(b"full")


async def test_a_request_that_expects_continue_is_refused_by_the_app():
    app, full = App(), Full()
    async with connected(app, LONG, full) as client:
        client.say(b"GET / HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\n\r\n")
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


class FakeFastPath:
    """Takes posts, answers them with their bodies once the gate is open, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.taken: list[bytes] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_last = False

    def find(self, method: bytes, url: bytes, headers: Headers, state: Any) -> Any:
        self.asked.append(url)
        return url if method == b"POST" else None

    def take(self, request: bytes, content: bytes, exchange: Exchange) -> None:
        self.taken.append(content)
        exchange.run(self._answer(request, content, exchange))

    async def _answer(self, url: bytes, content: bytes, exchange: Exchange) -> None:
        await self.gate.wait()
        head = b"content-length: %d\r\nurl: %b\r\n" % (len(content), url)
        exchange.answer(200, head, content, is_last=self.is_last)


class Reading(App):
    """Answers with the body that it was asked with."""

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                break
        self.bodies.append(body)
        await super().__call__(scope, receive, send)


def posted(body: bytes, *headers: bytes, version: bytes = b"1.1") -> bytes:
    lines = [b"POST /fast?a=b HTTP/" + version, b"Host: here"]
    lines += [b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


def echoed(body: bytes, *more: bytes) -> bytes:
    lines = [b"HTTP/1.1 200 OK", b"content-length: %d" % len(body), b"url: /fast?a=b", *more]
    return b"\r\n".join([*lines, b"", body])


async def test_the_fast_path_answers_in_place_of_the_app():
    app, fast_path = App(), FakeFastPath()
    async with connected(app, LONG, fast_path=fast_path) as client:
        for body in (b"first", b"again"):
            client.say(posted(body))
            assert await client.until(body) == echoed(body)
        client.say(REQUEST)
        assert b"200 OK" in await client.until(b"ok")
    assert (app.asked, fast_path.taken) == (1, [b"first", b"again"])
    assert fast_path.asked == [b"/fast?a=b", b"/fast?a=b", b"/"]


async def test_requests_behind_one_on_the_fast_path_wait_for_its_answer():
    app, fast_path = Reading(), FakeFastPath()
    fast_path.gate.clear()
    async with connected(app, LONG, fast_path=fast_path) as client:
        client.say(posted(b"first") + posted(b"second") + REQUEST)
        await eventually(lambda: bool(fast_path.taken))
        for _ in range(20):  # event-loop ticks, in which they could be begun
            await asyncio.sleep(0)
        assert app.bodies == []
        fast_path.gate.set()
        assert await client.until(b"first") == echoed(b"first")
        for _ in range(2):
            assert b"200 OK" in await client.until(b"ok")
        client.say(posted(b"third"))
        assert await client.until(b"third") == echoed(b"third")
    assert app.bodies == [b"second", b""]


@pytest.mark.parametrize("missing", [3, len(b"beginning and end")])
async def test_a_body_that_is_not_all_there_is_for_the_app(missing: int):
    app, fast_path = Reading(), FakeFastPath()
    async with connected(app, LONG, fast_path=fast_path) as client:
        request = posted(b"beginning and end")
        client.say(request[:-missing])
        await eventually(lambda: bool(fast_path.asked))
        await asyncio.sleep(0)
        client.say(request[-missing:])
        await client.until(b"ok")
        client.say(posted(b"whole"))
        await client.until(b"whole")
    assert (app.bodies, fast_path.taken) == ([b"beginning and end"], [b"whole"])


async def test_a_large_body_is_read_to_its_end():
    app, fast_path = Reading(), FakeFastPath()
    body = bytes(1 << 20)
    async with connected(app, LONG, fast_path=fast_path) as client:
        for _ in range(2):
            client.say(posted(body))
            await client.until(b"ok")
    assert app.bodies == [body] * 2


@pytest.mark.parametrize(
    "request_",
    [
        posted(b"body", b"Connection: close"),
        posted(b"body", version=b"1.0"),
        posted(b"body", b"Connection: keep-alive", version=b"1.0"),
    ],
)
async def test_the_last_request_of_a_connection_is_for_the_app(request_: bytes):
    app, fast_path = Reading(), FakeFastPath()
    async with connected(app, LONG, fast_path=fast_path) as client:
        client.say(request_)
        assert (await client.rest()).endswith(b"ok")
    assert (app.bodies, fast_path.asked) == ([b"body"], [])


async def test_a_request_that_expects_continue_goes_to_the_app():
    app, fast_path = App(), FakeFastPath()
    async with connected(app, LONG, fast_path=fast_path) as client:
        client.say(posted(b"", b"Expect: 100-continue"))
        assert b"200 OK" in await client.until(b"ok")
    assert fast_path.asked == []


async def test_requests_in_excess_are_not_for_the_fast_path():
    fast_path, full = FakeFastPath(), Full()
    async with connected(App(), LONG, full, fast_path=fast_path) as client:
        client.say(posted(b"body"))
        assert b"503" in await client.until(b"full")
    assert fast_path.asked == []


async def test_a_last_answer_says_so_and_hangs_up():
    fast_path = FakeFastPath()
    fast_path.is_last = True
    async with connected(App(), LONG, fast_path=fast_path) as client:
        client.say(posted(b"body"))
        assert await client.rest() == echoed(b"body", b"connection: close")


async def test_a_server_that_stops_waits_for_the_fast_path_and_hangs_up():
    fast_path, state = FakeFastPath(), ServerState()
    fast_path.gate.clear()
    async with connected(App(), LONG, fast_path=fast_path, state=state) as client:
        client.say(posted(b"body"))
        await eventually(lambda: bool(fast_path.taken))
        (protocol,) = state.connections
        protocol.shutdown()
        assert (len(state.tasks), client.is_open) == (1, True)
        fast_path.gate.set()
        assert await client.rest() == echoed(b"body", b"connection: close")
    assert state.tasks == set()


async def test_an_answer_to_a_closed_connection_goes_nowhere():
    fast_path = FakeFastPath()
    fast_path.gate.clear()
    connection = Connection(App(), fast_path)
    await connection.receive(posted(b"body"))
    connection.lose()
    fast_path.gate.set()
    assert await connection.after_ticks() == b""  # and no error: pytest would tell
    state = connection.protocol.server_state
    assert (state.connections, state.tasks, state.total_requests) == (set(), set(), 0)


class Insisting(FakeFastPath):
    """Answers every request twice."""

    async def _answer(self, url: bytes, content: bytes, exchange: Exchange) -> None:
        for _ in range(2):
            await super()._answer(url, content, exchange)


async def test_a_second_answer_to_a_request_is_not_sent():
    async with connected(App(), LONG, fast_path=Insisting()) as client:
        for body in (b"first", b"again"):
            client.say(posted(body))
            assert await client.until(body) == echoed(body)


async def test_an_answer_on_the_fast_path_leaves_no_work_for_the_garbage_collector():
    gc.collect()  # what other tests left
    gc.disable()
    try:
        async with connected(App(), LONG, fast_path=FakeFastPath()) as client:
            for body in (b"first", b"second", b"third"):
                client.say(posted(body))
                await client.until(body)
            kept = [each for each in gc.get_objects() if type(each).__name__ == "_Exchange"]
            assert len(kept) == 1, "a connection has one"
        await eventually(lambda: kept[0].protocol is None)
    finally:
        gc.enable()


async def test_the_fast_path_is_not_for_slow_readers():
    app, fast_path = App(), FakeFastPath()
    large = bytes(60_000)  # some of them are more than the socket's buffers hold
    async with connected(app, LONG, fast_path=fast_path) as client:
        asked = 0
        while app.asked == 0:
            client.say(posted(large))
            asked += 1
            await asyncio.sleep(0.001)
        client.say(b"GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        answer = await client.rest()
    assert answer.count(b"HTTP/1.1 200 OK") == asked + 1


@pytest.mark.parametrize("fast_path", [None, FakeFastPath()])
async def test_an_idle_connection_is_closed(fast_path: FakeFastPath | None):
    async with connected(App(), LONG, fast_path=fast_path, keep_alive_seconds=SHORT) as client:
        client.say(posted(b"ok"))
        await client.until(b"ok")
        client.timers.advance(SHORT)
        assert await client.rest() == b""


async def test_a_busy_connection_is_not_closed():
    async with connected(App(), LONG, keep_alive_seconds=SHORT) as client:
        for _ in range(24):
            client.say(REQUEST)
            await client.until(b"ok")
            client.timers.advance(SHORT / 8)
        client.timers.advance(SHORT)
        assert await client.rest() == b""


@pytest.mark.parametrize("is_on_fast_path", [True, False])
async def test_a_connection_that_waits_for_its_answer_is_not_closed(is_on_fast_path: bool):
    app, fast_path = App(), FakeFastPath()
    async with connected(app, LONG, fast_path=fast_path, keep_alive_seconds=SHORT / 2) as client:
        client.say(REQUEST)
        await client.until(b"ok")
        app.gate.clear()
        fast_path.gate.clear()
        client.say(posted(b"still ok") if is_on_fast_path else REQUEST)
        await eventually(lambda: app.asked + len(fast_path.taken) == 2)
        client.timers.advance(2 * SHORT)
        app.gate.set()
        fast_path.gate.set()
        assert b"200 OK" in await client.until(b"ok")
        client.timers.advance(SHORT)
        assert await client.rest() == b""


async def test_slow_headers_have_their_own_timeout_not_the_idle_one():
    async with connected(App(), LONG, keep_alive_seconds=SHORT / 2) as client:
        client.say(REQUEST)
        await client.until(b"ok")
        await client.say_and_wait(REQUEST[:5])
        client.timers.advance(2 * SHORT)
        client.say(REQUEST[5:])
        assert b"200 OK" in await client.until(b"ok")


async def test_a_connection_that_is_gone_leaves_no_timer():
    state = ServerState()
    async with connected(App(), LONG, state=state) as client:
        client.say(REQUEST)
        await client.until(b"ok")
        (protocol,) = state.connections
        timer = protocol.timeout_keep_alive_task  # type: ignore[union-attr]
        assert timer is not None
    await eventually(lambda: not state.connections)
    assert timer.cancelled()


def statuses(sent: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", sent)]


async def test_a_head_is_never_taken_for_a_body():
    app, fast_path = Reading(), FakeFastPath()
    connection = Connection(app, fast_path)
    body = b"x" * (len(posted(b"x" * 10)) - 10 - len(b"\r\n\r\n") - 2)
    request = posted(body)
    end = request.index(b"\r\n\r\n")
    assert len(body) == end - 2  # the cache of heads that there was took such a head for its body
    await connection.receive(request)
    await connection.receive(request[: end + 1], request[end + 1 :])
    assert [*fast_path.taken, *app.bodies] == [body, body]


class Recording(Reading):
    """Remembers the headers of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[list[tuple[bytes, bytes]]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers.append(scope["headers"])
        await super().__call__(scope, receive, send)


H2C = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk"
WEBSOCKET = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13"
CHUNKED = b"POST /chunked HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n%b\r\n%b"
CHUNKS = b"3;a=b\r\nchu\r\n4\r\nnked\r\n0\r\nX-Trailer: end\r\n\r\n"


@pytest.mark.parametrize("has_fast_path", [True, False])
@pytest.mark.parametrize("upgrade", [H2C, WEBSOCKET])
async def test_an_upgrade_is_ignored_wherever_the_bytes_are_split(
    upgrade: bytes, has_fast_path: bool
):
    whole = b"".join(
        (
            posted(b"first", upgrade),
            CHUNKED % (upgrade + b"\r\n", CHUNKS),
            REQUEST[:-2] + upgrade + b"\r\n\r\n",
            posted(b"last"),
        )
    )
    for cut in range(len(whole)):
        app, fast_path = Reading(), FakeFastPath()
        connection = Connection(app, fast_path if has_fast_path else None)
        await connection.receive(whole[:cut], whole[cut:])
        assert statuses(connection.transport.sent) == [200] * 4, cut
        bodies = [*fast_path.taken, *app.bodies]
        assert sorted(bodies) == [b"", b"chunked", b"first", b"last"], cut
        connection.lose()


async def test_many_upgrades_in_one_segment_are_answered_each():
    connection = Connection(App())
    request = REQUEST[:-2] + H2C + b"\r\n\r\n"
    connection.protocol.data_received(request * 2000)
    for _ in range(100):
        await connection.after_ticks()
    assert statuses(connection.transport.sent) == [200] * 2000


async def test_a_tunnel_is_refused():
    connection = Connection(App())
    sent = await connection.receive(b"CONNECT here:443 HTTP/1.1\r\nHost: here\r\n\r\nhello")
    assert problem(sent)["status"] == 501
    assert connection.is_over


@pytest.mark.parametrize("junk", [b"junk\r\n\r\n", b"\x00", b"GET / HTTP/1.1\r\nHost : x\r\n\r\n"])
@pytest.mark.parametrize("has_fast_path", [True, False])
async def test_junk_is_refused_after_the_answers_that_are_due(junk: bytes, has_fast_path: bool):
    app, fast_path = Reading(), FakeFastPath()
    app.gate.clear()
    fast_path.gate.clear()
    connection = Connection(app, fast_path if has_fast_path else None)
    assert await connection.receive(posted(b"first") + posted(b"second") + junk) == b""
    fast_path.gate.set()
    app.gate.set()
    sent = await connection.after_ticks()
    assert statuses(sent) == [200, 200, 400]
    assert problem(sent[sent.index(b"HTTP/1.1 400") :])["status"] == 400
    assert connection.is_over
    assert [*fast_path.taken, *app.bodies] == [b"first", b"second"]


BROKEN = CHUNKED % (b"", b"3\r\nchu\r\nno size\r\n")


async def test_a_request_whose_body_breaks_off_is_refused_in_order():
    app = Reading()
    app.gate.clear()
    connection = Connection(app)
    await connection.receive(posted(b"first") + BROKEN + REQUEST)
    app.gate.set()
    assert statuses(await connection.after_ticks()) == [200, 400]
    assert app.bodies == [b"first"]
    assert connection.is_over


async def test_a_body_that_breaks_off_while_the_app_reads_it_is_refused():
    app = Reading()
    connection = Connection(app)
    cut = BROKEN.index(b"no size")
    sent = await connection.receive(BROKEN[:cut], BROKEN[cut:])
    assert problem(sent)["status"] == 400
    assert connection.is_over


async def test_a_body_that_breaks_off_after_its_answer_gets_no_second_one():
    connection = Connection(App())  # which answers before the body is there
    cut = BROKEN.index(b"no size")
    assert statuses(await connection.receive(BROKEN[:cut])) == [200]
    assert statuses(await connection.receive(BROKEN[cut:])) == [200]
    assert connection.is_over


async def test_nothing_is_begun_behind_the_last_answer():
    class Prompt(FakeFastPath):
        def take(self, request: bytes, content: bytes, exchange: Exchange) -> None:
            self.taken.append(content)
            exchange.answer(401, b"content-length: 0\r\n", b"", is_last=True)

    app, fast_path = Reading(), Prompt()
    connection = Connection(app, fast_path)
    sent = await connection.receive(posted(b"first") + posted(b"second") + REQUEST)
    assert statuses(sent) == [401]
    assert (fast_path.taken, app.asked) == ([b"first"], 0)


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nHost: here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here there\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: here\r\nHost: there\r\n\r\n",
        b"POST /fast HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"GET http://here HTTP/1.1\r\nHost: here\r\n\r\n",
    ],
)
async def test_a_host_is_asked_for_once(head: bytes):
    app, fast_path = App(), FakeFastPath()
    connection = Connection(app, fast_path)
    assert problem(await connection.receive(head))["status"] == 400
    assert (app.asked, fast_path.taken) == (0, [])


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /\r\n\r\n", 505),
        (b"GET / HTTP/2.0\r\nHost: here\r\n\r\n", 505),
        (CHUNKED.replace(b"chunked\r\n", b"gzip, chunked\r\n") % (b"", CHUNKS), 501),
        (CHUNKED.replace(b"chunked\r\n", b"gzip\r\n") % (b"", CHUNKS), 501),
    ],
)
async def test_what_is_not_spoken_is_refused(request_: bytes, status: int):
    app = App()
    assert problem(await Connection(app).receive(request_))["status"] == status
    assert app.asked == 0


@pytest.mark.parametrize(
    "target", [b"/%b", b"/a?%b", b"/a#%b", b"http://here%b/", b"http://here/%b"]
)
async def test_no_byte_of_a_target_breaks_the_server(target: bytes):
    for byte in range(256):
        connection = Connection(App(), FakeFastPath())
        head = b"GET " + target % bytes([byte]) + b" HTTP/1.1\r\nHost: here\r\n\r\n"
        connection.protocol.data_received(head)
        assert statuses(await connection.answered())[0] in (200, 400, 505), byte


async def test_a_bug_is_not_taken_for_a_bad_request():
    class Broken(FakeFastPath):
        def find(self, *_: object) -> None:
            raise RuntimeError("a bug")

    with pytest.raises(httptools.HttpParserCallbackError):
        Connection(App(), Broken()).protocol.data_received(posted(b"body"))


async def test_a_head_without_end_is_refused_by_its_size():
    app = App()
    connection = Connection(app)
    line = b"X-Long: " + b"x" * 1000 + b"\r\n"
    await connection.receive(REQUEST + REQUEST[:-2], *[line] * (MAX_HEAD_BYTES // len(line)))
    assert statuses(connection.transport.sent) == [200]
    sent = await connection.receive(line)
    assert statuses(sent) == [200, 431]
    assert (app.asked, connection.is_over) == (1, True)


def head_of(size: int, kind: str) -> bytes:
    """A request head of this many bytes."""
    start, end = {
        "target": (b"GET /", b" HTTP/1.1\r\nHost: here\r\n\r\n"),
        "query": (b"GET http://here/?", b" HTTP/1.1\r\nHost: here\r\n\r\n"),
        "header": (b"GET / HTTP/1.1\r\nHost: here\r\nX-Long: ", b"\r\n\r\n"),
        "upgrade": (REQUEST[:-2] + b"Connection: upgrade\r\nUpgrade: ", b"\r\n\r\n"),
    }[kind]
    return start + b"x" * (size - len(start) - len(end)) + end


@pytest.mark.parametrize("kind", ["target", "query", "header", "upgrade"])
@pytest.mark.parametrize("cut", [0, 30, 40_000])
async def test_a_whole_head_is_refused_by_its_size(kind: str, cut: int):
    longest = head_of(MAX_HEAD_BYTES, kind)
    body = b"x" * 2 * MAX_HEAD_BYTES
    before = b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    sent = await Connection(App()).receive(before + longest[:cut], longest[cut:])
    assert statuses(sent) == [200, 200]
    for size in (MAX_HEAD_BYTES + 1, 80_000):
        app, head = App(), head_of(size, kind)
        connection = Connection(app)
        sent = await connection.receive(*filter(None, (head[:cut], head[cut:])))
        assert statuses(sent) == [431]
        assert b"application/problem+json" in sent
        assert (app.asked, connection.is_over) == (0, True)


async def test_trailers_do_not_become_headers():
    app = Recording()
    smuggled = CHUNKS.replace(b"X-Trailer: end", b"Authorization: Bearer k\r\nExpect: 100-continue")
    sent = await Connection(app).receive(CHUNKED % (b"", smuggled))
    assert statuses(sent) == [200]
    assert app.headers == [[(b"host", b"here"), (b"transfer-encoding", b"chunked")]]


async def test_blanks_around_a_header_do_not_count():
    app = Recording()
    await Connection(app).receive(REQUEST[:-2] + b"X-Blank: \t a b \t \r\n\r\n")
    assert app.headers == [[(b"host", b"here"), (b"x-blank", b"a b")]]


async def test_an_expectation_of_http_1_0_is_ignored():
    app = Reading()
    request = posted(b"body", b"Expect: 100-continue", version=b"1.0")
    assert statuses(await Connection(app).receive(request)) == [200]
    request = posted(b"body", b"Expect: 100-Continue")
    assert statuses(await Connection(app).receive(request)) == [100, 200]


@pytest.mark.parametrize("has_fast_path", [True, False])
async def test_a_client_that_has_half_closed_gets_its_answers(has_fast_path: bool):
    app, fast_path = Reading(), FakeFastPath()
    app.gate.clear()
    fast_path.gate.clear()
    connection = Connection(app, fast_path if has_fast_path else None)
    await connection.receive(posted(b"first") + posted(b"second"))
    assert await connection.receive_eof() == b""
    assert not connection.transport.is_closed
    app.gate.set()
    fast_path.gate.set()
    assert statuses(await connection.after_ticks()) == [200, 200]
    assert connection.transport.is_closed


async def test_the_end_of_an_idle_connection_closes_it():
    connection = Connection(App())
    await connection.receive(REQUEST)
    assert statuses(await connection.receive_eof()) == [200]
    assert connection.transport.is_closed


@pytest.mark.parametrize("cut", [5, len(posted(b"whole")) - 2])
async def test_the_end_within_a_request_is_refused_after_the_answers_that_are_due(cut: int):
    app = Reading()
    app.gate.clear()
    connection = Connection(app, FakeFastPath())
    await connection.receive(REQUEST + posted(b"whole")[:cut])
    await connection.receive_eof()
    app.gate.set()
    sent = await connection.after_ticks()
    assert statuses(sent) == [200, 400]
    assert connection.transport.is_closed


class Refusing(App):
    """Refuses a body that it does not read."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked += 1
        headers = [(b"content-length", b"3"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"big"})


async def test_a_client_that_sends_on_reads_why_it_was_refused():
    app, large = Refusing(), bytes(16 << 20)  # more than the buffers of a socket hold
    async with connected(app, LONG) as client:
        await client.say_all(posted(large))
        client.say_no_more()
        assert (await client.rest()).endswith(b"big")
    assert app.asked == 1


async def test_an_idle_connection_is_closed_without_stages():
    connection = Connection(App())
    await connection.receive(REQUEST)
    connection.protocol.shutdown()
    assert (connection.transport.is_closed, connection.transport.has_sent_eof) == (True, False)


async def test_the_timer_of_an_idle_connection_does_not_cut_the_last_stage_short():
    connection = Connection(Refusing())
    await connection.receive(REQUEST)
    connection.protocol._idle_since = -LONG
    connection.protocol.timeout_keep_alive_handler()
    assert (connection.transport.is_closed, connection.transport.has_sent_eof) == (False, True)


def test_uvicorn_is_pinned_where_its_inner_methods_are_overridden():
    metadata = ProjectMetadata(str(ROOT), PluginManager()).core
    pinned = [Requirement(each) for each in metadata.dependencies if each.startswith("uvicorn")]
    assert [str(each.specifier) for each in pinned] == ["<0.55,>=0.54"]
    assert version("uvicorn") in pinned[0].specifier
    protocol: Any = guarded_protocol(LONG, lambda url, headers: None)
    for name in ("on_message_begin", "on_headers_complete", "on_body", "on_message_complete"):
        assert getattr(protocol, name) is not getattr(HttpToolsProtocol, name)
    for name in ("_start_asgi_task", "_unset_keepalive_if_required", "timeout_keep_alive_handler"):
        assert hasattr(HttpToolsProtocol, name)
