"""Serving processes and a trainer over Postgres and Redis, the blows that they get, and what is then true."""

import asyncio
import itertools
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psutil

from service.records import EventKind
from tests.support.machines.haproxy import HAProxy
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import (
    EVENTS_A_ROUND,
    Clients,
    History,
    check,
    idle_state,
    state,
)
from tests.support.waiting import PATIENCE_SECONDS, eventually

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
    """Two servers of one process each, and a trainer; `targets` are struck in turn, `stores` once each."""

    def __init__(
        self, folder: Path, database_url: str, redis_url: str, *stores: Victim, **settings: object
    ) -> None:
        self._folder = folder
        self._settings: dict[str, Any] = {
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            **QUICK,
            **settings,
        }
        self.stores = stores
        self.servers, self.trainers, self.targets = self._processes()

    def _processes(self) -> tuple[list[Server], list[Daband], list[Victim]]:
        servers = [self.server() for _ in range(2)]
        trainer = self.trainer()
        return servers, [trainer], [*servers, trainer]

    def server(self, *options: str) -> Server:
        return Server(self._folder, "--no-trainer", *options, **self._settings)

    def trainer(self) -> Daband:
        return Daband(self._folder, "train", **self._settings)

    @property
    def processes(self) -> list[Daband]:
        return [*self.servers, *self.trainers]

    @property
    def urls(self) -> list[str]:
        """Where clients ask."""
        return [server.url for server in self.servers]

    async def start(self) -> None:
        for process in self.processes:
            process.start()
        await self.ready()

    async def ready(self) -> None:
        """Wait until every server takes requests."""
        for server in self.servers:
            await server.ready()

    def victims(self, kills: int) -> Iterator[Victim]:
        """The processes in turn, with each store once, evenly between them."""
        index_ = itertools.cycle(self.targets)
        stores = {
            kills * number // (len(self.stores) + 1): store
            for number, store in enumerate(self.stores, 1)
        }
        for number in range(kills):
            if number in stores:
                yield stores[number]
            yield next(index_)


class WorkersCluster(Cluster):
    """One server with two workers: struck are a worker, the parent alone, all of it, the trainer."""

    def _processes(self) -> tuple[list[Server], list[Daband], list[Victim]]:
        server, trainer = self.server("--workers", "2"), self.trainer()
        return [server], [trainer], [Worker(server), Parent(server), trainer, server]

    async def ready(self) -> None:
        """Wait until both workers take requests."""
        (server,) = self.servers

        async def are_both_started() -> bool:
            started = {line["process_id"] for line in server.lines("service_started")}
            return len(started & {worker.pid for worker in server.workers()}) == 2

        await eventually(are_both_started, server)


async def strike(victim: Victim) -> None:
    """kill -9, and start again at once."""
    await asyncio.to_thread(victim.kill)
    await asyncio.to_thread(victim.start)


class Play(NamedTuple):
    """How many rounds were over in how long."""

    rounds: int
    seconds: float


class Load:
    """Rounds that are offered to a cluster meanwhile."""

    def __init__(self, cluster: Cluster, history: History, offering: "asyncio.Task[None]") -> None:
        self._cluster = cluster
        self._history = history
        self._offering = offering

    async def answered(self, rounds: int) -> Play:
        """Wait until at least `rounds` more rounds are over."""
        began, before = time.monotonic(), len(self._history.rewarded)

        async def are_over() -> bool:
            assert not self._offering.done(), self._offering.exception()
            return len(self._history.rewarded) >= before + rounds

        await eventually(are_over, *self._cluster.processes)
        return Play(len(self._history.rewarded) - before, time.monotonic() - began)


class Survived(NamedTuple):
    """In seconds: the longest time from a restart until a round is over, and an event while all servers run."""

    longest_wait: float
    an_event: float


async def survive(
    cluster: Cluster,
    blows: Iterable[Victim],
    database_url: str,
    offered: float,
    between: int,
    history: History | None = None,
) -> Survived:
    """Play rounds, with `between` of them before each blow and after the last.

    Every second blow comes while the process of the blow before may still start. In the end nothing
    acknowledged is lost or counted twice, and a replay is equal.
    """
    history, is_over = history or History(), asyncio.Event()
    waits: list[Play] = []
    plays: list[Play] = []
    async with Clients(cluster.urls, history) as clients:
        await clients.create_experiment(**LARGE)
        offering = asyncio.create_task(clients.offer(offered, until=is_over))
        load = Load(cluster, history, offering)
        for number, victim in enumerate(blows):
            if number % 2 == 0:
                await cluster.ready()
            play = await load.answered(between)
            if number % 2 == 0:
                plays.append(play)
            await strike(victim)
            waits.append(await load.answered(1))
        await cluster.ready()
        plays.append(await load.answered(between))
        is_over.set()
        await offering
    await idle_state(cluster.urls[0], *cluster.processes)
    log = await check(history, database_url)
    assert not history.asked.keys() - history.decided.keys()
    assert len(history.rewarded) == sum(event.kind is EventKind.REWARD for event in log)
    assert (await state(cluster.urls[-1]))["encoder_version"] > 0
    longest_wait = max(wait.seconds for wait in waits)
    events = EVENTS_A_ROUND * sum(play.rounds for play in plays)
    return Survived(longest_wait, sum(play.seconds for play in plays) / events)


class BalancedCluster(Cluster):
    """Two groups of two serving processes behind haproxy, and two trainers."""

    def _processes(self) -> tuple[list[Server], list[Daband], list[Victim]]:
        servers = [self.server("--workers", "2") for _ in range(2)]
        trainers = [self.trainer() for _ in range(2)]
        self.balancer = HAProxy([server.port for server in servers])
        parts: list[Victim] = [Worker(servers[0]), Parent(servers[1])]
        return servers, trainers, [servers[1], *trainers, *parts]

    @property
    def urls(self) -> list[str]:
        return [self.balancer.url]
