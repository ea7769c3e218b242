"""How Postgres looks for events: by index, also where the log was short when it was first asked.

A plan that reads all of a short log is kept for statements that come again and again, and would
read all of a log that has grown by thousands a second meanwhile.
"""

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.events.postgres import BY_KEYS, BY_REQUESTS, transaction
from service.storage.experiments import Experiments
from tests.support.storage import PATIENT, PATIENT_COMMIT, decision, running

SEARCHES = {"keys": BY_KEYS, "requests": BY_REQUESTS}
OFTEN = 8  # more than the five times after which Postgres keeps a plan
PAGE = """
PREPARE page(text, bigint) AS SELECT * FROM events
WHERE experiment_id = $1 AND event_offset > $2 AND event_offset <= $2 + 20
"""
GROWTH = """
INSERT INTO events (experiment_id, event_offset, kind, event_key, payload, created_at)
SELECT experiment_id, 1000 + number, kind, event_key || number, payload, created_at
FROM events, generate_series(1, 20000) AS number WHERE event_offset = 1
"""


@pytest.fixture
async def short_log(postgres_url: str) -> str:
    """A few events, of which Postgres knows how few they are; where they are."""
    database = await Database.open(postgres_url, PATIENT)
    experiment = await Experiments(database).create("doses", "{}")
    event_log = EventLog(database, PATIENT_COMMIT)
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
    async with engine.connect() as lent:
        driver = (await lent.get_raw_connection()).driver_connection
        async with transaction(driver, PATIENT):
            within = await plan(driver, SEARCHES[name])
        outside = await plan(driver, SEARCHES[name])
    await engine.dispose()
    assert "Seq Scan on events" in outside  # or this would show nothing
    assert "Index Scan using" in within
    assert "Seq Scan on events" not in within


async def test_appends_may_keep_their_one_plan(short_log: str):
    database = await Database.open(short_log, PATIENT)

    async def mode(driver: asyncpg.Connection) -> str:
        async with transaction(driver, PATIENT):
            return str(await driver.fetchval("SHOW plan_cache_mode"))

    assert await database.write_by_driver(mode) == "auto"
    await database.close()


async def plan_of_a_page(url: str, reading: AsyncConnection) -> str:
    """How a page is read that was read often while the log was short, now that it is long."""
    writing = await asyncpg.connect(url)
    # Else Postgres would count the rows in between, and think again.
    await writing.execute("ALTER TABLE events SET (autovacuum_enabled = off)")
    await reading.execute(sa.text(PAGE))
    for _ in range(OFTEN):
        await reading.execute(sa.text("EXECUTE page('x', 0)"))
    await writing.execute(GROWTH)
    await writing.close()
    rows = await reading.execute(sa.text("EXPLAIN EXECUTE page('x', 0)"))
    return "\n".join(rows.scalars())


async def test_a_plan_for_a_short_log_is_not_kept_for_reads(short_log: str):
    database = await Database.open(short_log, PATIENT)
    found = await database.read(lambda connection: plan_of_a_page(short_log, connection))
    await database.close()
    assert "Index Scan using" in found
    assert "Seq Scan on events" not in found


async def test_postgres_by_itself_keeps_the_plan_for_a_short_log(short_log: str):
    # Or the test above would show nothing.
    engine = create_async_engine(short_log.replace("postgresql:", "postgresql+asyncpg:"))
    async with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        found = await plan_of_a_page(short_log, connection)
    await engine.dispose()
    assert "Seq Scan on events" in found
