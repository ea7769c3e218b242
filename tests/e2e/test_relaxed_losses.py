"""Relaxed decisions under load: an outage of Postgres loses none, a kill no more than the bound."""

import asyncio
from pathlib import Path

from loadtest.lost_events import Comparison, compared, logged_ids
from loadtest.relaxed_callers import CREATION, EXPERIMENT, RelaxedCallers
from loadtest.traffic import SELECT
from tests.e2e.conftest import Adopt
from tests.support.http.clients import client_of
from tests.support.processes.daband import Daband, Server
from tests.support.processes.servers import PostgresServer
from tests.support.waiting import PATIENCE_SECONDS, eventually

BOUND = 64
MANY = 300  # decisions


async def started(folder: Path, adopt: Adopt[Daband], postgres: PostgresServer) -> Server:
    settings = {
        "RELAXED_BOUND": BOUND,
        "DRAIN_SECONDS": PATIENCE_SECONDS,
        "STORAGE_TIMEOUT_SECONDS": 1,
        "TRAINER_INSIDE": False,
    }
    server = Server(folder, DATABASE_URL=postgres.url(), **settings)
    adopt(server).start()
    await server.ready()
    async with client_of(server.url) as http:
        (await http.post("/experiments", json=CREATION)).raise_for_status()
    return server


async def in_the_log(callers: RelaxedCallers, postgres: PostgresServer) -> Comparison:
    logged = await logged_ids(postgres.url(), EXPERIMENT)
    return compared({SELECT: callers.answered}, logged)


async def is_all_written(server: Server) -> bool:
    async with client_of(server.url) as http:
        return "\ndaband_unwritten_decisions 0.0" in (await http.get("/metrics")).text


async def test_an_outage_of_postgres_loses_none(
    folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer
):
    server = await started(folder, adopt, own_postgres)
    async with asyncio.timeout(PATIENCE_SECONDS), RelaxedCallers(server.url) as callers:
        await callers.answered_more(MANY)
        await asyncio.to_thread(own_postgres.pause)
        await eventually(lambda: callers.refused > 0)  # from the bound on they had to wait
        await asyncio.to_thread(own_postgres.resume)
        await callers.answered_more(MANY)
        await callers.stop()
    await eventually(lambda: is_all_written(server), server)
    found = await in_the_log(callers, own_postgres)
    assert (found.lost, found.repeated) == (0, 0)
    assert found.acknowledged >= 2 * MANY
    assert server.lines("decisions_lost") == []
    assert server.starts == 1


async def test_a_killed_server_loses_no_more_than_the_bound(
    folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer
):
    server = await started(folder, adopt, own_postgres)
    async with asyncio.timeout(PATIENCE_SECONDS), RelaxedCallers(server.url) as callers:
        await callers.answered_more(MANY)
        await asyncio.to_thread(own_postgres.pause)
        await eventually(lambda: callers.refused > 0)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(own_postgres.resume)
        await callers.stop()
    found = await in_the_log(callers, own_postgres)
    assert found.lost <= BOUND
    assert found.repeated == 0


async def test_a_server_that_stops_in_an_outage_writes_when_it_is_over(
    folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer
):
    server = await started(folder, adopt, own_postgres)
    async with asyncio.timeout(PATIENCE_SECONDS), RelaxedCallers(server.url) as callers:
        await callers.answered_more(MANY)
        await asyncio.to_thread(own_postgres.pause)
        await eventually(lambda: callers.refused > 0)
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        await callers.stop()
        await asyncio.to_thread(own_postgres.resume)
        assert await stopping == 0
    found = await in_the_log(callers, own_postgres)
    assert (found.lost, found.repeated) == (0, 0)
    assert server.lines("decisions_lost") == []
