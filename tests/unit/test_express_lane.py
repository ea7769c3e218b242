"""The express lane answers as the layers of the door do, and leaves to them what is theirs."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest
from starlette.types import Message, Receive, Scope, Send

from service.app import create_app
from service.express_lane import WHOLE_ANSWER, WHOLE_BODY, ExpressLane
from service.metrics.processes import exposition
from service.rewarding import Rewarding
from service.settings import Settings
from tests.api_tools import CONTEXT, Api, asgi
from tests.asgi_tools import Caller

ROUND: dict[str, Any] = {"experiment": "doses", "source": {"context": CONTEXT}, "request_id": "r-1"}
NAMED = {"X-Request-ID": "mine-1"}
Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


def lane_of(api: Api) -> ExpressLane:
    lane = api.app.door  # type: ignore[attr-defined]
    assert isinstance(lane, ExpressLane)
    return lane


def layers_of(api: Api) -> httpx.AsyncClient:
    """The app as if it had no lane."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        await lane_of(api)._app({**scope, "state": {"services": api.services}}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(call), base_url="http://test")


def posted(path: str, **options: Any) -> Ask:
    options["headers"] = {**NAMED, **options.get("headers", {})}
    return lambda http: http.post(path, **options)


def counted(api: Api) -> list[str]:
    """What the metrics say of requests and problems, without the times."""
    lines = exposition(api.services.metrics.registry).decode().splitlines()
    names = ("daband_request_seconds_count", "daband_problems_total", "daband_requests_in_flight")
    return [line for line in lines if line.startswith(names)]


@pytest.mark.parametrize(
    "ask",
    [
        posted("/select", json=ROUND),
        posted("/select", json={**ROUND, "source": {"context": ["1", 1, 1, 1]}}),
        posted("/select", json={**ROUND, "experiment": "nobody"}),
        posted("/select", content=b""),
        posted("/select", content=b"{}", headers={"Content-Type": "text/plain"}),
        posted("/select", content=b"x" * ((8 << 20) + 1)),
        posted("/select", json=ROUND, headers={"Origin": "http://elsewhere"}),
        posted("/select", json=ROUND, headers={"Content-Encoding": "gzip"}),
        posted(
            "/select?domain=nowhere", content=b"", headers={"Content-Type": "application/x-npy"}
        ),
        posted("/reward", json={"decision_id": "none", "reward": 1.0}),
        posted("/target/select", json={"experiment": "doses", "contexts": [CONTEXT, CONTEXT]}),
        lambda http: http.get("/select", headers=NAMED),
        lambda http: http.put("/select", headers=NAMED),
    ],
)
async def test_the_lane_answers_and_counts_as_the_layers_do(api: Api, ask: Ask):
    await ask(api.http)  # what is stored is there for both
    before = counted(api)
    lane = await ask(api.http)
    between = counted(api)
    async with layers_of(api) as http:
        layers = await ask(http)
    assert (lane.status_code, lane.content) == (layers.status_code, layers.content)
    assert dict(lane.headers) == dict(layers.headers)
    assert _grown(before, between) == _grown(between, counted(api))


def _grown(before: list[str], after: list[str]) -> dict[str, float]:
    def values(lines: list[str]) -> dict[str, float]:
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    known, found = values(before), values(after)
    return {name: value - known.get(name, 0.0) for name, value in found.items()}


async def test_a_crash_is_answered_with_the_id_and_nothing_else(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    async def crash(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(Rewarding, "reward", crash)
    answer = await api.http.post("/reward", json={"decision_id": "a", "reward": 1.0}, headers=NAMED)
    assert (answer.status_code, answer.json()["request_id"]) == (500, "mine-1")
    assert "secret" not in answer.text


async def test_a_body_in_parts_is_read_by_the_layers(api: Api):
    content = httpx.Request("POST", "http://test", json=ROUND).content
    caller = Caller(content[:10], content[10:])
    assert await caller.ask(stateful(api)) == 200
    assert caller.taken == 3


async def test_a_caller_that_leaves_before_the_end_of_its_body_is_not_answered(api: Api):
    caller = Caller(b"{", is_complete=False)
    caller.has_left = True
    assert await caller.ask(stateful(api)) is None
    assert 'method="POST",route="/select",status="gone"' not in "".join(counted(api))
    assert 'route="unmatched",status="gone"' in "".join(counted(api))


async def test_a_body_that_is_not_there_yet_is_waited_for(api: Api):
    content = httpx.Request("POST", "http://test", json=ROUND).content
    there = asyncio.Event()
    sent: list[Message] = []

    async def receive() -> Message:
        await there.wait()
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/select",
        "headers": [],
        "query_string": b"",
    }
    asking = asyncio.create_task(stateful(api)(scope, receive, send))
    await asyncio.sleep(0)
    assert not asking.done()
    there.set()
    await asking
    assert sent[0]["status"] == 200


async def test_a_body_that_the_server_has_is_not_asked_for(api: Api):
    asked: list[bytes] = []

    def with_body(body: bytes | None) -> Any:
        inner = stateful(api, extensions={WHOLE_BODY: {"receive": lambda: body}})

        async def call(scope: Scope, receive: Receive, send: Send) -> None:
            async def noted() -> Message:
                message = await receive()
                asked.append(message["body"])
                return message

            await inner(scope, noted, send)

        return call

    caller = Caller()
    assert await caller.ask(with_body(msgspec.json.encode(ROUND))) == 200
    assert asked == []
    assert await Caller().ask(with_body(None)) == 422  # the caller's own body is empty
    assert asked == [b""]
    assert await Caller().ask(with_body(b"x" * ((8 << 20) + 1))) == 422  # for the layers, who ask
    assert asked == [b"", b""]


@pytest.mark.parametrize("is_taken", [True, False])
async def test_an_answer_is_handed_over_whole_where_the_server_takes_it(api: Api, is_taken: bool):
    written: list[tuple[int, bytes, bytes]] = []

    def whole(status: int, head: bytes, body: bytes) -> bool:
        written.append((status, head, body))
        return is_taken

    caller = Caller(x_request_id="mine-1")
    app = stateful(api, extensions={WHOLE_ANSWER: {"send": whole}})
    assert await caller.ask(app) == (None if is_taken else 422)
    ((status, head, body),) = written
    lines = dict(line.split(b": ", 1) for line in head.removesuffix(b"\r\n").split(b"\r\n"))
    assert (status, lines[b"content-length"]) == (422, b"%d" % len(body))
    if not is_taken:
        assert (lines, body) == (caller.headers, caller.sent[1]["body"])


async def test_the_last_answers_are_sent_by_messages_which_say_so(api: Api):
    def whole(*_: object) -> bool:
        raise AssertionError("the server would not hang up")

    api.services.readiness.begin_drain()
    caller = Caller()
    assert await caller.ask(stateful(api, extensions={WHOLE_ANSWER: {"send": whole}})) == 422
    assert caller.headers[b"connection"] == b"close"


def test_there_is_no_lane_where_requests_are_traced():
    app = create_app(Settings(otlp_endpoint="http://127.0.0.1:1"))
    assert not isinstance(app.door, ExpressLane)


def stateful(api: Api, **scope: Any) -> Any:
    inner = asgi(api.app, api.services)

    async def call(given: Scope, receive: Receive, send: Send) -> None:
        await inner({"query_string": b"", **given, **scope}, receive, send)

    return call
