"""The limits of requests, with an app and a server that the test holds in its hand."""

import asyncio
import logging
from typing import Any

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.concurrency_limit import ConcurrencyLimit, LoadLimits, MetricsBuffer
from service.http.middleware import Admission, Limits, RequestScope
from service.http.problems import Problems
from service.metrics import Metrics
from service.ops import logs
from service.ops.supervisor import Readiness
from tests.support.asgi import Caller, Inner


@pytest.fixture
async def inner() -> Inner:
    return Inner()


def guarded(inner: ASGIApp, metrics: Metrics, **limits: Any) -> ASGIApp:
    given = {"max_body_bytes": 10, "body_timeout_seconds": 30.0, **limits}
    admission = Admission(inner, problems=Problems(metrics), limits=Limits(**given))
    return scoped(admission, metrics)


def buffer(metrics: Metrics) -> MetricsBuffer:
    return MetricsBuffer(metrics, ConcurrencyLimit(LoadLimits(1, target_seconds=60)))


def scoped(inner: ASGIApp, metrics: Metrics, readiness: Readiness | None = None) -> RequestScope:
    return RequestScope(
        inner,
        problems=Problems(metrics),
        buffer=buffer(metrics),
        readiness=readiness or Readiness(),
        slow_seconds=60,
    )


async def test_a_body_in_parts_arrives_whole(inner: Inner):
    assert await Caller(b"he", b"", b"llo").ask(guarded(inner, Metrics())) == 200
    assert inner.bodies == [b"hello"]


async def test_a_body_that_grows_too_large_is_refused_without_reading_on(inner: Inner):
    caller = Caller(b"123456", b"123456", b"more", b"more", transfer_encoding="chunked")
    assert await caller.ask(guarded(inner, Metrics())) == 413
    assert (caller.taken, inner.bodies, caller.headers[b"connection"]) == (2, [], b"close")


@pytest.mark.parametrize("length", ["11", "9" * 100])
async def test_a_body_that_says_it_is_too_large_is_not_read(inner: Inner, length: str):
    caller = Caller(b"1", content_length=length)
    assert await caller.ask(guarded(inner, Metrics())) == 413
    assert caller.taken == 0


async def test_a_body_that_is_larger_than_it_says_is_refused(inner: Inner):
    caller = Caller(b"12345678901", content_length="5")
    assert await caller.ask(guarded(inner, Metrics())) == 413


async def test_a_body_that_never_ends_is_given_up(inner: Inner):
    caller = Caller(b"123", is_complete=False, content_length="5")
    assert await caller.ask(guarded(inner, Metrics(), body_timeout_seconds=0.01)) == 408
    assert inner.bodies == []


async def test_a_caller_that_disconnects_gets_no_answer(inner: Inner):
    caller = Caller(b"123", is_complete=False)
    caller.has_left = True
    assert await caller.ask(guarded(inner, Metrics())) is None
    assert inner.bodies == []


async def test_a_sane_request_id_is_kept_and_bound_to_log_lines(inner: Inner):
    caller = Caller(x_request_id="lab-7:a.b")
    await caller.ask(scoped(inner, Metrics()))
    assert caller.headers[b"x-request-id"] == b"lab-7:a.b"
    assert inner.contexts == [{"request_id": "lab-7:a.b"}]
    assert dict(logs.context()) == {}


@pytest.mark.parametrize("sent", ["", "a b", "é", "x" * 129, "a\nb"])
async def test_another_request_id_is_made(inner: Inner, sent: str):
    caller = Caller(x_request_id=sent)
    await caller.ask(scoped(inner, Metrics()))
    assert len(caller.headers[b"x-request-id"]) == 36


async def test_unknown_routes_and_methods_share_a_label(inner: Inner):
    metrics = Metrics()
    await Caller().ask(scoped(inner, metrics), "/anything", "BREW")
    await asyncio.sleep(0)  # metrics are recorded at the end of a tick
    line = 'daband_request_seconds_count{method="other",route="unmatched",status="2xx"} 1.0'
    assert line in metrics.exposition().decode()


async def test_a_crash_after_the_answer_began_is_only_logged(
    caplog: pytest.LogCaptureFixture,
):
    async def breaking(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError

    caller = Caller()
    assert await caller.ask(scoped(breaking, Metrics())) == 200
    assert len(caller.sent) == 1
    assert [getattr(record, "action", None) for record in caplog.records] == ["request_failed"]


async def test_a_slow_request_is_logged(inner: Inner, caplog: pytest.LogCaptureFixture):
    app = RequestScope(
        inner,
        problems=Problems(Metrics()),
        buffer=buffer(Metrics()),
        readiness=Readiness(),
        slow_seconds=0,
    )
    with caplog.at_level(logging.WARNING):
        await Caller().ask(app)
    assert [getattr(record, "action", None) for record in caplog.records] == ["request_slow"]
