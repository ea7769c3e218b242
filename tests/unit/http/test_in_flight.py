"""Requests that wait for their bodies, behind the middleware and in front of an app of the test's own."""

import asyncio
from typing import Any

from starlette.types import ASGIApp

from service.http.concurrency_limit import (
    IN_FLIGHT,
    ConcurrencyLimit,
    InFlight,
    LoadLimits,
    MetricsBuffer,
    Shedding,
    paused,
)
from service.http.middleware import Admission, Limits
from service.http.problems import Problems
from service.metrics import Metrics
from service.ops.supervisor import Readiness
from tests.support.asgi import Inner
from tests.support.loadtest import VirtualTime
from tests.support.storage import running
from tests.support.waiting import eventually

UPLOAD = "/target/contexts"


class SlowCaller:
    """Sends its body piece by piece, as tests command."""

    def __init__(self) -> None:
        self.pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.sent: list[Any] = []
        self.send_piece(b"some", more_body=True)

    def send_piece(self, body: bytes, *, more_body: bool) -> None:
        message = {"type": "http.request", "body": body, "more_body": more_body}
        self.pieces.put_nowait(message)

    async def ask(self, app: Shedding, path: str = "/select") -> None:
        async def send(message: Any) -> None:
            self.sent.append(message)

        scope = {"type": "http", "method": "POST", "path": path, "headers": []}
        await app(scope, self.pieces.get, send)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def header_names(self) -> set[bytes]:
        return {name for name, _ in self.sent[0]["headers"]}


class Middleware:
    """Shedding and Admission as the app has them, with room for one request."""

    def __init__(self, inner: ASGIApp) -> None:
        self.metrics = metrics = Metrics()
        limits = Limits(max_body_bytes=100, body_timeout_seconds=3600)
        admission = Admission(inner, problems=Problems(metrics), limits=limits)
        limit = ConcurrencyLimit(LoadLimits(max_in_flight=1, target_seconds=60))
        self.app = Shedding(
            admission,
            metrics=metrics,
            buffer=MetricsBuffer(metrics, limit),
            readiness=Readiness(),
            limit=limit,
        )

    async def answers(self, caller: SlowCaller) -> int | None:
        caller.send_piece(b"", more_body=False)
        await caller.ask(self.app)
        return caller.status


async def test_a_slow_body_takes_no_place_in_the_limit():
    middleware, slow = Middleware(Inner()), SlowCaller()
    async with running(slow.ask(middleware.app)):
        await eventually(slow.pieces.empty)
        assert await middleware.answers(SlowCaller()) == 200
        slow.send_piece(b"", more_body=False)
        await eventually(lambda: slow.status == 200)


async def test_an_upload_that_waits_for_a_piece_takes_no_place_in_the_limit():
    async def reading(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"]:
            pass

    middleware, slow = Middleware(reading), SlowCaller()
    async with running(slow.ask(middleware.app, UPLOAD)):
        await eventually(slow.pieces.empty)
        assert middleware.app.early_refusal(b"/select", []) is None


async def test_more_slow_bodies_than_may_be_at_work_are_refused():
    middleware, first, second = Middleware(Inner()), SlowCaller(), SlowCaller()
    async with running(first.ask(middleware.app)):
        await eventually(first.pieces.empty)
        await second.ask(middleware.app)
        assert (second.status, b"connection" in second.header_names) == (503, True)
        assert await middleware.answers(SlowCaller()) == 200, "whose body is there is served"


async def test_a_request_is_refused_if_all_places_are_taken_when_its_body_has_come():
    inner, slow, quick = Inner(), SlowCaller(), SlowCaller()
    middleware = Middleware(inner)
    async with running(slow.ask(middleware.app)):
        await eventually(slow.pieces.empty)
        inner.gate.clear()
        async with running(middleware.answers(quick)):
            await eventually(lambda: len(inner.bodies) == 1)
            slow.send_piece(b"", more_body=False)
            await eventually(lambda: slow.status is not None)
            assert (slow.status, b"connection" in slow.header_names) == (503, False)
            inner.gate.set()
            await eventually(lambda: quick.status == 200)
    assert b"daband_requests_in_flight 0.0" in middleware.metrics.exposition()


def test_the_time_for_a_body_is_not_taken_for_slow_work():
    time = VirtualTime()
    limit = ConcurrencyLimit(LoadLimits(100, target_seconds=0.1), time.clock)
    for _ in range(20):
        request = InFlight(limit)
        with paused({IN_FLIGHT: request}):
            time.advance(10.0)
        request.end()
    assert limit.limit == 100
