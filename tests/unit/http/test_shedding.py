"""Requests in excess, with an app and callers that the test holds in its hand."""

import json

import pytest
from starlette.types import ASGIApp

from service.errors import Overloaded
from service.http.concurrency_limit import ConcurrencyLimit, LoadLimits, MetricsBuffer, Shedding
from service.http.cors import SecurityHeaders
from service.metrics import Metrics
from service.ops.supervisor import Readiness
from tests.support.asgi import Caller, Inner
from tests.support.storage import running
from tests.support.waiting import eventually


@pytest.fixture
async def inner() -> Inner:
    return Inner()


def shedding(
    inner: ASGIApp, metrics: Metrics, most: int = 2, readiness: Readiness | None = None
) -> Shedding:
    limit = ConcurrencyLimit(LoadLimits(most, target_seconds=60))
    return Shedding(
        inner,
        metrics=metrics,
        buffer=MetricsBuffer(metrics, limit),
        readiness=readiness or Readiness(),
        limit=limit,
    )


async def test_more_requests_than_allowed_are_refused_and_room_is_made_again(inner: Inner):
    metrics = Metrics()
    app = shedding(inner, metrics)
    inner.gate.clear()
    async with running(Caller(b"1").ask(app), Caller(b"2").ask(app)):
        await eventually(lambda: len(inner.bodies) == 2)
        refused = Caller(b"3")
        assert await refused.ask(app) == 503
        assert refused.taken == 0, "its body is not read"
        assert b"daband_requests_in_flight 2.0" in metrics.exposition()
        inner.gate.set()
        await eventually(lambda: b"daband_requests_in_flight 0.0" in metrics.exposition())
    assert await Caller(b"4").ask(app) == 200


async def test_a_refusal_has_the_shape_of_every_problem(inner: Inner):
    inner.gate.clear()
    app = shedding(inner, Metrics(), most=1)
    async with running(Caller(b"1").ask(app)):
        await eventually(lambda: len(inner.bodies) == 1)
        refused = Caller(b"2", x_request_id="lab-7")
        await refused.ask(app)
    start, content = refused.sent
    problem = json.loads(content["body"])
    assert problem == Overloaded().problem() | {
        "instance": "urn:daband:request:lab-7",
        "request_id": "lab-7",
    }
    assert dict(start["headers"]) == {
        b"content-type": b"application/problem+json",
        b"content-length": str(len(content["body"])).encode(),
        b"retry-after": b"1",
        b"x-request-id": b"lab-7",
    }


async def test_refusals_are_counted_like_other_answers(inner: Inner):
    metrics = Metrics()
    app = shedding(inner, metrics, most=1)
    inner.gate.clear()
    async with running(Caller(b"1").ask(app)):
        await eventually(lambda: len(inner.bodies) == 1)
        await Caller(b"2").ask(app)
    received = metrics.exposition().decode()
    assert 'daband_problems_total{slug="overloaded"} 1.0' in received
    assert (
        'daband_request_seconds_count{method="POST",route="unmatched",status="5xx"} 1.0' in received
    )


async def test_a_process_that_drains_asks_the_refused_to_connect_elsewhere(inner: Inner):
    readiness = Readiness()
    readiness.begin_drain()
    app = shedding(inner, Metrics(), most=1, readiness=readiness)
    inner.gate.clear()
    async with running(Caller(b"1").ask(app)):
        await eventually(lambda: len(inner.bodies) == 1)
        refused = Caller(b"2")
        assert await refused.ask(app) == 503
    assert refused.headers[b"connection"] == b"close"


async def test_probes_are_answered_however_busy(inner: Inner):
    app = shedding(inner, Metrics(), most=1)
    inner.gate.clear()
    async with running(Caller(b"1").ask(app), Caller().ask(app, "/healthz", "GET")):
        await eventually(lambda: len(inner.bodies) == 2)


async def test_a_request_that_breaks_makes_room_again():
    async def breaking(*_: object) -> None:
        raise RuntimeError

    app = shedding(breaking, Metrics(), most=1)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            await Caller().ask(app)


async def test_the_early_refusal_says_what_the_long_way_says(inner: Inner):
    metrics = Metrics()
    app = shedding(inner, metrics, most=1)
    named = [(b"x-request-id", b"lab-7")]
    assert app.early_refusal(b"/select", named) is None, "there is room"
    inner.gate.clear()
    async with running(Caller(b"1").ask(app)):
        await eventually(lambda: len(inner.bodies) == 1)
        refused = Caller(b"2", x_request_id="lab-7")
        await refused.ask(SecurityHeaders(app))
        early = app.early_refusal(b"/select?a=b", named)
        assert app.early_refusal(b"/healthz?a=b", named) is None
    assert early is not None
    head, _, content = early.partition(b"\r\n\r\n")
    start, body = refused.sent
    lines = {name + b": " + value for name, value in start["headers"]}
    assert (set(head.split(b"\r\n")), content) == (lines, body["body"])
    counted = b'daband_problems_total{slug="overloaded"} 2.0'
    assert counted in metrics.exposition()


@pytest.mark.parametrize(
    ("url", "field"),
    [(b"/v2/models/a/infer", "error"), (b"/ofrep/v1/evaluate/flags/a?b=c", "errorDetails")],
)
async def test_the_early_refusal_speaks_the_protocol_of_its_path(url: bytes, field: str):
    app = shedding(Inner(), Metrics(), most=0)
    refusal = app.early_refusal(url, [])
    assert refusal is not None
    head, _, content = refusal.partition(b"\r\n\r\n")
    assert json.loads(content)[field] == Overloaded.default_detail()
    assert b"retry-after: 1" in head
    assert app.early_refusal(b"/v2/health/ready", []) is None


async def test_a_process_about_to_stop_refuses_the_long_way(inner: Inner):
    readiness = Readiness()
    app = shedding(inner, Metrics(), most=0, readiness=readiness)
    assert app.early_refusal(b"/select", []) is not None
    readiness.begin_drain()
    assert app.early_refusal(b"/select", []) is None
