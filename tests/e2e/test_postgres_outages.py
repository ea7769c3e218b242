"""Postgres stopped, killed or hung: every call is refused in time, nothing is half done, all recovers."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import httpx
import pytest

from service.records import EventKind
from tests.e2e.conftest import Adopt
from tests.support.http.clients import client_of
from tests.support.measuring import Measured
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import NAME, Clients, History, check, idle_state
from tests.support.processes.servers import PostgresServer
from tests.support.waiting import eventually

CONTEXT = [1.0, 0.0, -1.0, 0.5]
REFUSAL_SECONDS = 1.0
RECOVERY_SECONDS = 5.0
ROUNDS_A_SECOND = 20
Send = Callable[[], Awaitable[httpx.Response]]


class Probe:
    """Asks for everything that needs the database, and times each answer."""

    def __init__(self, http: httpx.AsyncClient, history: History) -> None:
        self._http = http
        self._history = history
        self._numbers = itertools.count()
        self.decision_id = ""
        self.slowest = 0.0
        self.refused: list[str] = []

    def calls(self) -> list[Send]:
        reward = {"decision_id": self.decision_id, "reward": 1.0}
        return [
            lambda: self.select(f"probe-{next(self._numbers)}"),
            lambda: self._http.post("/reward", json=reward),
            lambda: self._http.post("/reward/batch", json={"rewards": [reward]}),
            lambda: self._http.get(f"/experiments/{NAME}/state"),
        ]

    async def begin(self) -> None:
        """A decision to reward later."""
        decided = (await self.select("first")).json()
        self.decision_id = decided["source"]["decision_id"]
        self._history.reported[self.decision_id] = 1.0

    async def select(self, request_id: str) -> httpx.Response:
        sides = {"source": {"context": CONTEXT}, "target": {"context": CONTEXT}}
        body = {"experiment": NAME, "request_id": request_id, **sides}
        self._history.asked[request_id] = body
        answer = await self._http.post("/select", json=body)
        if answer.status_code == 503:
            self.refused.append(request_id)
        if answer.status_code == 200:
            self._history.note_decision(request_id, answer.json())
        return answer

    async def all_are_refused(self) -> None:
        for call in self.calls():
            began = time.monotonic()
            answer = await call()
            self.slowest = max(self.slowest, time.monotonic() - began)
            assert answer.status_code == 503, answer.text
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.headers["Content-Type"] == "application/problem+json"

    async def recovered_after(self, server: Server) -> float:
        """Seconds until all calls have succeeded, one after the other."""
        began = time.monotonic()
        for call in self.calls():
            await eventually(partial(succeeds, call), server)
        return time.monotonic() - began

    async def send_again(self, server: Server) -> None:
        """Retry the refused requests under their ids until they are answered."""
        for request_id in tuple(self.refused):
            await eventually(partial(succeeds, partial(self.select, request_id)), server)


async def succeeds(call: Send) -> bool:
    return (await call()).is_success


def stop(postgres: PostgresServer) -> Callable[[], None]:
    """Shut it down in order; how to bring it back."""
    postgres.stop()
    return postgres.start


def kill(postgres: PostgresServer) -> Callable[[], None]:
    """It crashes; how to bring it back."""
    postgres.kill()
    return postgres.start


def hang(postgres: PostgresServer) -> Callable[[], None]:
    """Connections stay open and nothing is answered, so each call takes its whole timeout."""
    postgres.pause()
    return postgres.resume


@pytest.mark.slow
@pytest.mark.parametrize(("outage", "probes"), [(stop, 10), (kill, 10), (hang, 1)])
async def test_without_postgres_calls_are_refused_and_recover_without_a_restart(
    folder: Path,
    adopt: Adopt[Daband],
    own_postgres: PostgresServer,
    redis_url: str,
    outage: Callable[[PostgresServer], Callable[[], None]],
    probes: int,
    measured: Measured,
):
    server = Server(
        folder,
        DATABASE_URL=own_postgres.url(),
        REDIS_URL=redis_url,
        LEASE_SECONDS=2,
        STORAGE_TIMEOUT_SECONDS=0.7,
    )
    adopt(server).start()
    await server.ready()
    history, is_over = History(), asyncio.Event()
    async with (
        client_of(server.url) as http,
        Clients([server.url], history) as clients,
    ):
        await clients.create_experiment()
        await clients.play(20)
        probe = Probe(http, history)
        await probe.begin()
        under_load = asyncio.create_task(clients.offer(ROUNDS_A_SECOND, is_over))
        bring_back = await asyncio.to_thread(outage, own_postgres)
        for _ in range(probes):
            await probe.all_are_refused()
        assert (await http.get("/healthz")).is_success
        await asyncio.to_thread(bring_back)
        recovered = await probe.recovered_after(server)
        is_over.set()
        await under_load
        await probe.send_again(server)
    measured.at_most("seconds to a refusal", probe.slowest, REFUSAL_SECONDS)
    measured.at_most("seconds to recovery", recovered, RECOVERY_SECONDS)
    assert (server.is_running, server.starts) == (True, 1)
    await idle_state(server.url, server)
    events = await check(history, own_postgres.url())
    sides = Counter(event.request_id for event in events if event.kind is EventKind.DECISION)
    assert set(sides.values()) == {2}  # both sides of a round, or none
