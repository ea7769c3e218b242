"""How Postgres looks for what an append might repeat: by index, also while the log is short.

A plan that reads all of a short log is kept for statements that come again and again, and would
read all of a log that has grown by thousands a second meanwhile.
"""

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import create_async_engine

from service.storage.database import Database
from service.storage.event_log import EventLog
from service.storage.experiments import Experiments
from service.storage.postgres_session import BY_KEYS, BY_REQUESTS, PostgresSession
from tests.storage_tools import PATIENT, decision, running

SEARCHES = {"keys": BY_KEYS, "requests": BY_REQUESTS}


@pytest.fixture
async def short_log(postgres_url: str) -> str:
    """A few events, of which Postgres knows how few they are; where they are."""
    database = await Database.open(postgres_url, PATIENT)
    experiment = await Experiments(database).create("doses", "{}")
    event_log = EventLog(database)
    async with running(event_log.run()):
        await event_log.append([decision(experiment) for _ in range(20)])
        await event_log.close()
    await database.close()
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("ANALYZE events")
    await connection.close()
    return postgres_url


async def plan(connection: asyncpg.Connection, search: str) -> str:
    rows = await connection.fetch(f"EXPLAIN {search}", "decision", ["a", "b"])
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("name", SEARCHES)
async def test_a_short_log_is_searched_by_index(short_log: str, name: str):
    engine = create_async_engine(short_log.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.connect() as lent, PostgresSession.begun(lent) as session:
        within = await plan(session._connection, SEARCHES[name])
    async with engine.connect() as lent:
        driver = (await lent.get_raw_connection()).driver_connection
        outside = await plan(driver, SEARCHES[name])
    await engine.dispose()
    assert "Seq Scan on events" in outside  # or this would show nothing
    assert "Index Scan using" in within
    assert "Seq Scan on events" not in within
