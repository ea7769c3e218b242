"""Nothing acknowledged is lost or counted twice, whichever processes are killed."""

import asyncio
import itertools
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import psutil
import pytest

from service.records import EventKind
from tests.e2e.conftest import Adopt
from tests.support.measuring import Measured
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import (
    EVENTS_A_ROUND,
    Clients,
    History,
    check,
    idle_state,
    state,
)
from tests.support.processes.servers import PostgresServer, RedisServer
from tests.support.waiting import PATIENCE_SECONDS, eventually

OFFERED_ROUNDS = 80  # a second
LEAST_EVENTS = 200  # a second, where times are measured
BETWEEN_ROUNDS = 60  # that are answered between two blows
SHORT = 3  # kills; so short a history is played at a quarter of that, and its speed not looked at
QUICK = {"LEASE_SECONDS": 1, "POLL_SECONDS": 0.2}
LARGE = {"episode_length": 64}


class Victim(Protocol):
    def kill(self) -> None: ...
    def start(self) -> None: ...


class Worker:
    """One of the serving processes of a server, which is replaced when it dies."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def kill(self) -> None:
        self._server.workers()[0].kill()

    def start(self) -> None:
        """Nothing to do, but for the server to live."""
        assert self._server.is_running


class Parent:
    """The process that watches over a server's workers; when it is gone they end by themselves."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def kill(self) -> None:
        orphans = self._server.workers()
        self._server.send_to_parent(signal.SIGKILL)
        self._server.wait()
        _, alive = psutil.wait_procs(orphans, PATIENCE_SECONDS)
        assert alive == []

    def start(self) -> None:
        self._server.start()


class Cluster:
    """Serving processes and a trainer over Postgres and Redis, and the blows they get."""

    def __init__(self, folder: Path, postgres: PostgresServer, redis: RedisServer) -> None:
        self._folder = folder
        self._settings = {"DATABASE_URL": postgres.url(), "REDIS_URL": redis.url, **QUICK}
        self.trainer = Daband(folder, "train", **self._settings)
        self.stores: list[Victim] = [postgres, redis]
        self.servers, self.targets = self._serving()

    def _serving(self) -> tuple[list[Server], list[Victim]]:
        """Two servers of one process each; what is struck in turn."""
        servers = [Server(self._folder, "--no-trainer", **self._settings) for _ in range(2)]
        return servers, [*servers, self.trainer]

    @property
    def processes(self) -> list[Daband]:
        return [*self.servers, self.trainer]

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers]

    async def start(self) -> None:
        for process in self.processes:
            process.start()
        for server in self.servers:
            await server.ready()

    async def strike(self, victim: Victim) -> None:
        """kill -9, and start again at once."""
        await asyncio.to_thread(victim.kill)
        await asyncio.to_thread(victim.start)

    def victims(self, kills: int) -> Iterator[Victim]:
        """The processes in turn, with each store once: when a third and two thirds are done."""
        index_ = itertools.cycle(self.targets)
        stores = {kills // 3: self.stores[0], 2 * kills // 3: self.stores[1]}
        for number in range(kills):
            if number in stores:
                yield stores[number]
            yield next(index_)


class WorkersCluster(Cluster):
    """One server with two workers: struck are a worker, the parent alone, all of it, the trainer."""

    def _serving(self) -> tuple[list[Server], list[Victim]]:
        server = Server(self._folder, "--workers", "2", "--no-trainer", **self._settings)
        return [server], [Worker(server), Parent(server), self.trainer, server]


LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        (Cluster, SHORT),
        pytest.param(WorkersCluster, 4, marks=pytest.mark.slow),  # each of its targets once
        pytest.param(Cluster, 24, marks=LONG),
        pytest.param(WorkersCluster, 24, marks=LONG),
    ],
)
async def test_history_survives_kills_and_restarts(
    kind: type[Cluster],
    kills: int,
    folder: Path,
    adopt: Adopt[Daband],
    own_postgres: PostgresServer,
    own_redis: RedisServer,
    measured: Measured,
):
    cluster = kind(folder, own_postgres, own_redis)
    for process in cluster.processes:
        adopt(process)
    await cluster.start()
    history, is_over = History(), asyncio.Event()
    offered, between = OFFERED_ROUNDS, BETWEEN_ROUNDS
    if kills <= SHORT:
        offered, between = offered // 4, between // 4
    async with Clients(cluster.urls, history) as clients:
        await clients.create_experiment(**LARGE)
        offering = asyncio.create_task(clients.offer(offered, until=is_over))
        for victim in cluster.victims(kills):
            await answered(history, between, offering, cluster)
            await cluster.strike(victim)
        await answered(history, between, offering, cluster)
        is_over.set()
        seconds = 1 / (await offering * EVENTS_A_ROUND)
    if kills > SHORT:
        measured.at_most("seconds for an event of the offered load", seconds, 1 / LEAST_EVENTS)
    await idle_state(cluster.urls[0], *cluster.processes)
    events = await check(history, own_postgres.url())
    assert not history.asked.keys() - history.decided.keys()
    assert len(history.rewarded) == sum(event.kind is EventKind.REWARD for event in events)
    assert (await state(cluster.urls[-1]))["encoder_version"] > 0


async def answered(
    history: History, rounds: int, offering: "asyncio.Task[float]", cluster: Cluster
) -> None:
    """Wait until `rounds` more rounds are over."""
    goal = len(history.rewarded) + rounds

    async def are_over() -> bool:
        assert not offering.done(), offering.exception()
        return len(history.rewarded) >= goal

    await eventually(are_over, *cluster.processes)
