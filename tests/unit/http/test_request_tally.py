"""The metrics are told of a turn's requests at once, and of every one of them."""

import asyncio

import pytest

from service.http.concurrency_limit import ConcurrencyLimit, LoadLimits, RequestTally
from service.metrics import Metrics
from service.metrics.many_histogram import ManyHistogram


@pytest.fixture
def limit() -> ConcurrencyLimit:
    return ConcurrencyLimit(LoadLimits(max_in_flight=8, target_seconds=60))


async def test_what_happens_in_a_turn_is_told_at_its_end(
    limit: ConcurrencyLimit, monkeypatch: pytest.MonkeyPatch
):
    told: list[list[float]] = []
    monkeypatch.setattr(ManyHistogram, "observe_many", lambda _, some: told.append([*some]))
    tally = RequestTally(Metrics(), limit)
    for seconds in (0.1, 0.2):
        tally.add("/select", "POST", 200, seconds)
    assert told == []
    await asyncio.sleep(0)
    assert told == [[0.1, 0.2]]
    await asyncio.sleep(0)
    tally.add("/select", "POST", 200, 0.3)
    await asyncio.sleep(0)
    assert told == [[0.1, 0.2], [0.3]], "each is told once"


async def test_answers_are_told_apart(limit: ConcurrencyLimit):
    metrics = Metrics()
    tally = RequestTally(metrics, limit)
    for route, status in (("/select", 200), ("/select", 422), ("/reward", None), ("/select", 200)):
        tally.add(route, "POST", status, 0.1)
    await asyncio.sleep(0)
    text = metrics.exposition().decode()
    for route, kept, count in (
        ("/select", "2xx", 2),
        ("/select", "4xx", 1),
        ("/reward", "gone", 1),
    ):
        labels = f'{{method="POST",route="{route}",status="{kept}"}}'
        assert f"daband_request_seconds_count{labels} {count}.0" in text


async def test_who_waits_for_its_body_is_there_too(limit: ConcurrencyLimit):
    metrics = Metrics()
    tally = RequestTally(metrics, limit)
    for _ in range(3):
        limit.enter()
    limit.step_aside()
    tally.tell_soon()
    await asyncio.sleep(0)
    assert b"daband_requests_in_flight 3.0" in metrics.exposition()


def test_many_values_are_observed_as_one_after_the_other():
    values = [0.0, 0.001, 0.0011, 0.5, 0.25, 11.0, float("inf"), 0.5]
    exposed = []
    for is_many in (False, True):
        metrics = Metrics()
        timer = metrics.request_seconds.labels("/select", "POST", "2xx")
        if is_many:
            timer.observe_many(values)
        else:
            for each in values:
                timer.observe(each)
        exposed.append(metrics.exposition())
    assert exposed[0] == exposed[1]
