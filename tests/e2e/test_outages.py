"""Without Redis, or with a mute or empty one, callers notice nothing. Without Postgres, requests are refused at once until it is back."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.conftest import Adopt
from tests.support.http.clients import client_of
from tests.support.measuring import Measured, percentile
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import NAME, Clients, History, check, idle_state, state
from tests.support.processes.servers import PostgresServer, RedisServer
from tests.support.waiting import eventually

RATIO = 2.0
CLIENTS = 2
# Short phases with and without the fault alternate, so that other load falls on both alike. For a
# 99th percentile there are many of them: it is the 8th largest of 800.
ROUNDS = 40  # of each client, in one phase
PHASES = 10
REFUSAL_SECONDS = 1.0
RECOVERY_SECONDS = 5.0
SELECT: dict[str, Any] = {"experiment": NAME, "source": {"context": [0.1, 0.2, 0.3, 0.4]}}
PROBE = "probe"
# As shipped, for what is measured. Elsewhere Postgres has the time that a busy machine takes.
DEFAULT_TIMEOUTS = {"STORAGE_TIMEOUT_SECONDS": 1.0, "REDIS_TIMEOUT_SECONDS": 0.2}
PATIENT_TIMEOUTS = {**DEFAULT_TIMEOUTS, "STORAGE_TIMEOUT_SECONDS": 10.0}


class Pair:
    """A server and a trainer over a Postgres and a Redis to hurt."""

    def __init__(
        self, folder: Path, postgres: PostgresServer, redis: RedisServer, timeouts: dict[str, float]
    ) -> None:
        shared = {"DATABASE_URL": postgres.url(), "REDIS_URL": redis.url, **timeouts}
        self.postgres, self.redis = postgres, redis
        self.server = Server(folder, "--no-trainer", **shared)
        self.trainer = Daband(folder, "train", **shared)
        self.http = client_of(self.server.url)

    async def select(self, **fields: str) -> tuple[httpx.Response, float]:
        """The answer, and after how many seconds."""
        started = time.monotonic()
        answer = await self.http.post("/select", json=SELECT | fields)
        return answer, time.monotonic() - started

    async def latencies(self) -> list[float]:
        """Of selects of several clients that then report their rewards; none may fail."""
        found: list[float] = []

        async def client() -> None:
            for _ in range(ROUNDS):
                answer, seconds = await self.select()
                assert answer.status_code == 200, answer.text
                found.append(seconds)
                body = {"decision_id": answer.json()["source"]["decision_id"], "reward": 1.0}
                assert (await self.http.post("/reward", json=body)).status_code == 201

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return found

    async def learns(self) -> None:
        """Wait until the newest version is served."""

        async def is_served() -> bool:
            answer, _ = await self.select()
            newest = (await state(self.server.url)).get("policy_version", 0)
            return answer.is_success and 0 < newest <= answer.json()["policy_version"]

        await eventually(is_served, self.server, self.trainer)


@pytest.fixture
async def pair(
    folder: Path,
    adopt: Adopt[Daband],
    own_postgres: PostgresServer,
    own_redis: RedisServer,
    measured: Measured,
) -> AsyncIterator[Pair]:
    timeouts = DEFAULT_TIMEOUTS if measured.is_held else PATIENT_TIMEOUTS
    made = Pair(folder, own_postgres, own_redis, timeouts)
    for process in (made.server, made.trainer):
        adopt(process).start()
    await made.server.ready()
    async with Clients([made.server.url], History()) as clients:
        await clients.create_experiment(episode_length=100_000)
    yield made
    await made.http.aclose()


def stopped(redis: RedisServer) -> Callable[[], None]:
    redis.stop()
    return redis.start


def mute(redis: RedisServer) -> Callable[[], None]:
    redis.pause()
    return redis.resume


def empty(redis: RedisServer) -> Callable[[], None]:
    redis.flush()
    return redis.flush


@pytest.mark.parametrize(
    "fault",
    [
        stopped,
        pytest.param(mute, marks=pytest.mark.slow),
        pytest.param(empty, marks=pytest.mark.slow),
    ],
)
async def test_selects_and_learning_go_on_without_redis(
    pair: Pair, fault: Callable[[RedisServer], Callable[[], None]], measured: Measured
):
    await pair.latencies()  # warm
    healthy, faulty = list[float](), list[float]()
    for _ in range(PHASES if measured.is_held else 1):
        await pair.learns()
        healthy += await pair.latencies()
        mend = await asyncio.to_thread(fault, pair.redis)
        faulty += await pair.latencies()
        await asyncio.to_thread(mend)
    ratio = percentile(faulty, 99) / percentile(healthy, 99)
    measured.at_most("p99 of select, ratio to that without the fault", ratio, RATIO)
    await pair.learns()
    mend = await asyncio.to_thread(fault, pair.redis)
    before = (await state(pair.server.url))["policy_version"]
    await pair.latencies()
    await idle_state(pair.server.url, pair.server, pair.trainer)
    await pair.learns()
    assert (await state(pair.server.url))["policy_version"] > before
    await asyncio.to_thread(mend)


async def test_without_postgres_requests_are_refused_and_served_after(
    pair: Pair, measured: Measured
):
    history = History(asked={PROBE: SELECT})
    async with Clients([pair.server.url], history) as clients:
        await clients.play(20)
        await asyncio.to_thread(pair.postgres.stop)
        playing = asyncio.create_task(clients.play(20))
        slowest = await check_refusals(pair)
        await asyncio.to_thread(pair.postgres.start)
        returned = time.monotonic()
        await eventually(lambda: is_answered(pair), pair.server)
        recovered = time.monotonic() - returned
        await playing
    measured.at_most("seconds to a refusal", slowest, REFUSAL_SECONDS)
    measured.at_most("seconds to recovery", recovered, RECOVERY_SECONDS)
    assert (pair.server.starts, pair.trainer.starts) == (1, 1)
    assert pair.server.is_running
    assert pair.trainer.is_running
    await idle_state(pair.server.url, pair.server, pair.trainer)
    await check(history, pair.postgres.url())


async def check_refusals(pair: Pair) -> float:
    """Alive but not ready; every request is refused with Retry-After; returns the longest wait."""
    slowest = 0.0
    assert (await pair.http.get("/healthz")).status_code == 200
    await eventually(lambda: is_unready(pair), pair.server)  # the last write counts for a second
    for _ in range(20):
        answer, seconds = await pair.select(request_id=PROBE)
        assert answer.status_code == 503, answer.text
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.headers["Content-Type"] == "application/problem+json"
        slowest = max(slowest, seconds)
    return slowest


async def is_unready(pair: Pair) -> bool:
    return (await pair.http.get("/readyz")).status_code == 503


async def is_answered(pair: Pair) -> bool:
    return (await pair.select(request_id=PROBE))[0].status_code == 200
