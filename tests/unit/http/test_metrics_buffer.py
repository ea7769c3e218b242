"""Every request is counted, and the number in flight is written once a tick."""

import asyncio

import pytest

from service.http.concurrency_limit import ConcurrencyLimit, LoadLimits, MetricsBuffer
from service.metrics import Metrics


@pytest.fixture
def limit() -> ConcurrencyLimit:
    return ConcurrencyLimit(LoadLimits(max_in_flight=8, target_seconds=60))


async def test_the_number_in_flight_is_written_at_the_end_of_a_tick(limit: ConcurrencyLimit):
    metrics = Metrics()
    buffer = MetricsBuffer(metrics, limit)
    for _ in range(3):
        limit.enter()
        buffer.write_soon()
    assert b"daband_requests_in_flight 0.0" in metrics.exposition()
    await asyncio.sleep(0)
    assert b"daband_requests_in_flight 3.0" in metrics.exposition()


async def test_answers_are_counted_by_kind(limit: ConcurrencyLimit):
    metrics = Metrics()
    buffer = MetricsBuffer(metrics, limit)
    for route, status in (("/select", 200), ("/select", 422), ("/reward", None), ("/select", 200)):
        buffer.add(route, "POST", status, 0.1)
    await asyncio.sleep(0)
    text = metrics.exposition().decode()
    for route, kept, count in (
        ("/select", "2xx", 2),
        ("/select", "4xx", 1),
        ("/reward", "gone", 1),
    ):
        labels = f'{{method="POST",route="{route}",status="{kept}"}}'
        assert f"daband_request_seconds_count{labels} {count}.0" in text


async def test_requests_that_wait_for_their_bodies_are_counted_too(limit: ConcurrencyLimit):
    metrics = Metrics()
    buffer = MetricsBuffer(metrics, limit)
    for _ in range(3):
        limit.enter()
    limit.pause()
    buffer.write_soon()
    await asyncio.sleep(0)
    assert b"daband_requests_in_flight 3.0" in metrics.exposition()
