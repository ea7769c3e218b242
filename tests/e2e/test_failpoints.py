"""Killed at any step of writing, learning and publishing, the service loses and doubles nothing."""

import asyncio
import signal
from pathlib import Path

import pytest

from service.ops.failpoints import Failpoint
from service.records import EventKind
from tests.e2e.conftest import Adopt
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import Clients, History, check, idle_state
from tests.support.storage import sqlite_url

QUICK = {"LEASE_SECONDS": 1, "POLL_SECONDS": 0.1}
ROUNDS = 48
# Episodes that fall due while an encoder trains are left out, so there may be only one.
ONCE = {Failpoint.BEFORE_CONCLUSION, Failpoint.AFTER_CONCLUSION}
ARCHIVING = {Failpoint.BEFORE_MANIFEST, Failpoint.AFTER_MANIFEST}  # test_archive_kill.py


async def check_death_at(point: Failpoint, server: Server, database_url: str) -> None:
    """Play until it dies there, start it again, play to the end."""
    server.start(FAIL_AT=f"{point}:{1 if point in ONCE else 2}")
    await server.ready()
    async with Clients([server.url], History()) as clients:
        await clients.create_experiment()
        playing = asyncio.create_task(clients.play(ROUNDS))
        assert await asyncio.to_thread(server.wait) == -signal.SIGKILL, server.tail()
        server.start()
        await server.ready()
        await playing
    await idle_state(server.url, server)
    events = await check(clients.history, database_url)
    assert sum(event.kind is EventKind.REWARD for event in events) == ROUNDS


@pytest.mark.parametrize(
    "point",
    [
        point if point is Failpoint.BEFORE_COMMIT else pytest.param(point, marks=pytest.mark.slow)
        for point in Failpoint
        if point not in ARCHIVING
    ],
)
async def test_a_death_on_sqlite_loses_and_doubles_nothing(
    point: Failpoint, folder: Path, adopt: Adopt[Daband]
):
    server = Server(folder, **QUICK)
    adopt(server)
    await check_death_at(point, server, sqlite_url(folder / "data" / "daband.db"))


@pytest.mark.parametrize(
    "point",
    [Failpoint.AFTER_COMMIT, pytest.param(Failpoint.AFTER_SNAPSHOT, marks=pytest.mark.slow)],
)
async def test_a_death_on_postgres_loses_and_doubles_nothing(
    point: Failpoint, folder: Path, adopt: Adopt[Daband], postgres_url: str, redis_url: str
):
    server = Server(folder, DATABASE_URL=postgres_url, REDIS_URL=redis_url, **QUICK)
    adopt(server)
    await check_death_at(point, server, postgres_url)
