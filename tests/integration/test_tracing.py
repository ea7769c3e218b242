"""Traces arrive at an OTLP collector when an endpoint is given, and cost nothing otherwise."""

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from service.ops import logs
from service.settings import Settings
from tests.support.api import CONTEXT, DOSES, Api, running_api
from tests.support.learning import EPISODE, TRAINING, idle_state, play
from tests.support.processes.collector import Collector, SentSpan, collecting
from tests.support.processes.servers import free_port

CALLERS_TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLERS_SPAN = "00f067aa0ba902b7"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


async def create(api: Api) -> None:
    assert (await api.http.post("/experiments", json=DOSES)).status_code == 201


def only(found: list[SentSpan], name: str) -> SentSpan:
    (span,) = [each for each in found if each.name == name]
    return span


async def test_a_select_is_one_trace_within_the_callers(collector: Collector, url: str):
    headers = {"traceparent": f"00-{CALLERS_TRACE}-{CALLERS_SPAN}-01", "X-Request-ID": "r-9"}
    async with running_api(url, otlp_endpoint=collector.endpoint) as api:
        await create(api)
        body = {"experiment": "doses", "source": {"context": CONTEXT}}
        assert (await api.http.post("/select", json=body, headers=headers)).status_code == 200
        assert api.app.fast_path.find(b"POST", b"/select", [], {}) is not None, "it is traced, too"
    found = [span for span in collector.spans() if span.trace_id == CALLERS_TRACE]
    request = only(found, "POST /select")
    assert request.parent_id == CALLERS_SPAN
    assert request.attributes["daband.request_id"] == "r-9"
    assert request.attributes["http.response.status_code"] == 200
    assert {only(found, name).parent_id for name in ("score", "append")} == {request.span_id}
    assert {span.service for span in found} == {"daband-api"}
    assert collector.paths == {"/v1/traces"}


async def test_selects_of_one_tick_have_their_own_spans(collector: Collector, url: str):
    async with running_api(url, otlp_endpoint=collector.endpoint) as api:
        await create(api)
        await asyncio.gather(*(api.select() for _ in range(4)))
    requests = [span for span in collector.spans() if span.name == "POST /select"]
    assert len({span.trace_id for span in requests}) == len(requests) == 4
    for name in ("score", "append"):
        parents = [span.parent_id for span in collector.spans(name)]
        assert sorted(parents) == sorted(span.span_id for span in requests)


async def test_the_start_says_that_requests_are_traced(
    collector: Collector, url: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO):
        async with running_api(url, otlp_endpoint=collector.endpoint):
            pass
    assert "tracing_on" in [getattr(record, "action", None) for record in caplog.records]


async def test_problems_end_their_spans_with_their_status(collector: Collector, url: str):
    async with running_api(url, otlp_endpoint=collector.endpoint) as api:
        await api.http.get("/experiments/nobody")
        await api.http.get("/nowhere")
    found = collector.spans()
    statuses = {span.name: span.attributes["http.response.status_code"] for span in found}
    assert statuses == {"GET /experiments/{name}": 404, "GET unmatched": 404}
    assert not any(span.is_error for span in found)


async def test_a_crash_is_an_error_that_quotes_nothing(
    collector: Collector, url: str, monkeypatch: pytest.MonkeyPatch
):
    async with running_api(url, otlp_endpoint=collector.endpoint) as api:

        async def crash(_: str) -> Any:
            raise ValueError("0.123456 is in here")

        monkeypatch.setattr(api.services.experiments, "get", crash)
        assert (await api.http.get("/experiments/doses")).status_code == 500
    (span,) = collector.spans()
    assert span.is_error
    assert not any(b"0.123456" in body for body in collector.bodies)


async def test_an_episode_has_a_span(collector: Collector, url: str):
    async with running_api(url, otlp_endpoint=collector.endpoint, **TRAINING) as api:
        await create(api)
        await play(api, EPISODE)
        await idle_state(api, EPISODE)
    span = collector.spans("episode")[0]
    assert span.attributes == {"daband.experiment": "doses", "daband.episode": 1}


async def test_log_lines_name_their_trace(collector: Collector, url: str):
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger = logging.getLogger("service.http.middleware")
    logger.addHandler(handler)
    try:
        async with running_api(
            url, otlp_endpoint=collector.endpoint, slow_request_seconds=1e-9
        ) as api:
            await api.http.get("/healthz")
    finally:
        logger.removeHandler(handler)
    (span,) = collector.spans()
    assert json.loads(stream.getvalue())["trace_id"] == span.trace_id
    assert dict(logs.context()) == {}


@pytest.mark.timeout(120)  # a shutdown that waits for it would take far longer
async def test_a_collector_that_is_away_holds_nothing_up(url: str):
    async with running_api(url, otlp_endpoint=f"http://127.0.0.1:{free_port()}") as api:
        await create(api)
        assert (await api.select()).status_code == 200


def test_the_standard_variable_turns_traces_on(monkeypatch: pytest.MonkeyPatch):
    assert Settings().trace_endpoint is None
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    assert Settings().trace_endpoint == "http://collector:4318"
    assert Settings(otlp_endpoint="http://ours:4318").trace_endpoint == "http://ours:4318"


def test_without_an_endpoint_nothing_is_loaded():
    code = (
        "import sys; from service.ops import tracing\n"
        "with tracing.exporting(None, 'api'), tracing.span('score'): pass\n"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
