"""The fast path answers as the middleware does, and leaves to it what is not plain."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from service.auth.keys import RateLimit
from service.auth.tenants import TenantScope
from service.deciding.reward import Rewarding
from service.deciding.select import Answered, Selecting
from service.errors import StorageUnavailable
from service.http import middleware
from service.ops import logs
from tests.support.api import CONTEXT, DOSES, Api, Exchange, behind_layers, running_api
from tests.support.keys import bearer, make_key

ROUND: dict[str, Any] = {"experiment": "doses", "source": {"context": CONTEXT}, "request_id": "r-1"}
NAMED = {"X-Request-ID": "mine-1"}
Ask = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


def behind_middleware(api: Api) -> httpx.AsyncClient:
    """The app as if it had no fast path."""
    layers = httpx.ASGITransport(behind_layers(api.app, api.services))
    return httpx.AsyncClient(transport=layers, base_url="http://test")


def posted(path: str, **options: Any) -> Ask:
    options["headers"] = {**NAMED, **options.get("headers", {})}
    return lambda http: http.post(path, **options)


async def counted(api: Api) -> list[str]:
    """What the metrics say of requests and problems, without the times."""
    await asyncio.sleep(0)  # they are recorded at the end of a tick
    lines = api.services.metrics.exposition().decode().splitlines()
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
async def test_the_fast_path_answers_and_counts_as_the_middleware_does(api: Api, ask: Ask):
    await ask(api.http)  # what is stored is there for both
    before = await counted(api)
    fast = await ask(api.http)
    between = await counted(api)
    async with behind_middleware(api) as http:
        slow = await ask(http)
    assert (fast.status_code, fast.content) == (slow.status_code, slow.content)
    assert dict(fast.headers) == dict(slow.headers)
    assert _grown(before, between) == _grown(between, await counted(api))


def _grown(before: list[str], after: list[str]) -> dict[str, float]:
    def values(lines: list[str]) -> dict[str, float]:
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}

    known, found = values(before), values(after)
    return {name: value - known.get(name, 0.0) for name, value in found.items()}


async def test_a_crash_is_answered_with_only_the_id(api: Api, monkeypatch: pytest.MonkeyPatch):
    async def crash(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(Rewarding, "reward", crash)
    answer = await api.http.post("/reward", json={"decision_id": "a", "reward": 1.0}, headers=NAMED)
    assert (answer.status_code, answer.json()["request_id"]) == (500, "mine-1")
    assert "secret" not in answer.text


async def test_a_crash_of_a_decision_is_answered_so_too(api: Api, monkeypatch: pytest.MonkeyPatch):
    async def crash(*_: object) -> None:
        raise RuntimeError("secret")

    await api.select()  # or the first request would be the layers' handler's
    monkeypatch.setattr(Selecting, "write", crash)
    answer = await api.http.post("/select", json=ROUND, headers=NAMED)
    assert (answer.status_code, answer.json()["request_id"]) == (500, "mine-1")
    assert "secret" not in answer.text
    assert "daband_requests_in_flight 0.0" in await counted(api)


async def test_an_answer_that_cannot_be_written_is_not_the_matter_of_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    await api.select()
    calls = iter(range(3))

    def content(answered: Answered) -> bytes:
        if next(calls) == 1:
            raise RuntimeError("secret")
        return encoded(answered)

    encoded = Answered.content
    monkeypatch.setattr(Answered, "content", content)
    answers = await asyncio.gather(*(api.select() for _ in range(3)))
    assert sorted(each.status_code for each in answers) == [200, 200, 500]
    assert "daband_requests_in_flight 0.0" in await counted(api)


async def test_a_refused_decision_is_answered_as_a_problem(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    async def refuse(*_: object) -> None:
        raise StorageUnavailable

    await api.select()
    monkeypatch.setattr(Selecting, "write", refuse)
    assert (await api.select()).json()["type"].endswith(StorageUnavailable.slug)


JSON = [(b"x-request-id", b"mine-1"), (b"content-type", b"application/json")]


def taken(api: Api, body: Any = ROUND, url: bytes = b"/select") -> Exchange:
    """A request that the server has handed over."""
    return handed_over(api, url, JSON, msgspec.json.encode(body))


def handed_over(
    api: Api, url: bytes, headers: list[tuple[bytes, bytes]], content: bytes
) -> Exchange:
    fast_path, exchange = api.app.fast_path, Exchange()
    request = fast_path.find(b"POST", url, headers, {"services": api.services})
    assert request is not None
    fast_path.take(request, content, exchange)
    return exchange


async def test_only_an_answer_without_waiting_needs_no_task(api: Api):
    first = taken(api)
    assert (await first.answered)[0] == 200
    again = taken(api)
    assert (await again.answered)[0] == 200
    reward = taken(api, {"decision_id": "none", "reward": 1.0}, b"/reward")
    assert (await reward.answered)[0] == 404
    assert [len(each.tasks) for each in (first, again, reward)] == [1, 0, 1]


async def test_an_invalid_request_is_answered_at_once(api: Api):
    exchange = taken(api, {"experiment": 1})
    assert exchange.answered.done()
    assert exchange.answered.result()[0] == 422


async def test_the_end_of_a_request_is_logged_with_its_id_and_nothing_else_is(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    seen: list[Mapping[str, Any]] = []
    monkeypatch.setattr(api.app.fast_path.requests, "_slow_seconds", 0.0)
    monkeypatch.setattr(middleware.log, "warning", lambda *_, **__: seen.append(logs.context()))
    for _ in range(2):
        exchange = taken(api)
        assert logs.context() == {}
        await exchange.answered
    assert seen == [{"request_id": "mine-1"}] * 2


async def test_work_that_is_cut_off_is_over(api: Api):
    exchange = taken(api, {"decision_id": "none", "reward": 1.0}, b"/reward")
    await asyncio.sleep(0)  # it has begun
    exchange.tasks[0].cancel()
    await asyncio.wait(exchange.tasks)
    assert not exchange.answered.done()
    lines = await counted(api)
    assert 'daband_request_seconds_count{method="POST",route="/reward",status="gone"} 1.0' in lines
    assert "daband_requests_in_flight 0.0" in lines


async def test_a_refused_caller_gets_one_answer_that_closes_its_connection(url: str):
    async with running_api(url, auth="required") as guarded:
        exchange = taken(guarded)
        status, head, _ = await exchange.answered
        assert (status, exchange.is_last) == (401, True)
        assert b"connection" not in head  # the server says so
        async with behind_middleware(guarded) as http:
            layers = await http.post("/select", json=ROUND)
        assert (layers.status_code, layers.headers["connection"]) == (401, "close")


BINARY_URL = b"/select?experiment=doses"
BINARY = [(b"content-type", b"application/octet-stream")]
VECTOR = np.array(CONTEXT, dtype="<f4").tobytes()


async def test_requests_of_one_tick_are_answered_each_by_its_body(api: Api):
    await api.select()  # or the first would be a task's
    bodies = (VECTOR, VECTOR[:-4], VECTOR, b"")
    exchanges = [handed_over(api, BINARY_URL, BINARY, body) for body in bodies]
    found = [await each.answered for each in exchanges]
    assert [status for status, _, _ in found] == [200, 422, 200, 422]
    heads = [head for _, head, _ in found]
    assert len({head.partition(b"x-request-id: ")[2] for head in heads}) == len(heads)
    decided = [msgspec.json.decode(body)["source"]["decision_id"] for _, _, body in found[::2]]
    assert len(set(decided)) == 2


@pytest.mark.parametrize("query", [b"experiment=", b"experiment=doses&domain=nowhere"])
async def test_a_query_that_is_wrong_is_refused_at_once(api: Api, query: bytes):
    exchange = handed_over(api, b"/select?" + query, BINARY, VECTOR)
    assert exchange.answered.result()[0] == 422


async def test_every_request_counts_for_the_rate_limit_of_its_key(url: str):
    three = RateLimit(per_second=0.001, burst=3)
    key = await make_key(url, TenantScope(), rate_limit=three)
    async with running_api(url, auth="required") as guarded:
        made = await guarded.http.post("/experiments", json=DOSES, headers=bearer(key))
        assert made.status_code == 201, made.text
        headers = [*BINARY, (b"authorization", b"Bearer " + key.encode())]
        exchanges = [handed_over(guarded, BINARY_URL, headers, VECTOR) for _ in range(3)]
        assert [(await each.answered)[0] for each in exchanges] == [200, 200, 429]


async def test_answers_in_a_drain_are_the_last(api: Api):
    exchange = taken(api)
    api.services.readiness.begin_drain()
    assert (await exchange.answered)[0] == 200
    assert exchange.is_last


@pytest.mark.parametrize(
    ("method", "asked_url", "header"),
    [
        (b"GET", b"/select", b""),
        (b"POST", b"/select/", b""),
        (b"POST", b"/%73elect", b""),
        (b"POST", b"/select#there", b""),
        (b"POST", b"/select?experiment=doses#there", b""),
        (b"POST", b"/experiments", b""),
        (b"POST", b"http://here/select", b""),
        (b"POST", b"/select", b"origin"),
        (b"POST", b"/select", b"content-encoding"),
        (b"POST", b"/select", b"expect"),
        (b"POST", b"/select", b"transfer-encoding"),
    ],
)
async def test_what_is_not_plain_passes_the_middleware(
    api: Api, method: bytes, asked_url: bytes, header: bytes
):
    headers = [(header, b"here")] if header else []
    assert api.app.fast_path.find(method, asked_url, headers, {}) is None
    assert api.app.fast_path.find(b"POST", b"/select?" + b"a" * 1000, [], {}) is not None


@pytest.mark.parametrize(("length", "is_fast"), [(65_536, True), (65_537, False)])
async def test_bodies_that_are_too_large_pass_the_middleware(api: Api, length: int, is_fast: bool):
    headers = [(b"content-length", b"%d" % length)]
    assert (api.app.fast_path.find(b"POST", b"/select", headers, {}) is not None) == is_fast
    headers = [(b"content-length", b"1" * 5000)]
    assert api.app.fast_path.find(b"POST", b"/select", headers, {}) is None


async def test_a_process_that_is_about_to_stop_answers_the_long_way(api: Api):
    api.services.readiness.begin_drain()
    assert api.app.fast_path.find(b"POST", b"/select", [], {}) is None


async def test_requests_in_excess_pass_the_middleware(api: Api):
    fast_path = api.app.fast_path
    begun = [fast_path.shedding.begin() for _ in range(fast_path.shedding._limit.limit)]
    assert fast_path.find(b"POST", b"/select", [], {}) is None
    begun.pop().end()
    assert fast_path.find(b"POST", b"/select", [], {}) is not None
