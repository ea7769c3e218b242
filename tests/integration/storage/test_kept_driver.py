"""The driver's connection that is kept between statements, on a real Postgres."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import sqlalchemy as sa

from service.errors import InvalidRequest, StorageUnavailable
from service.storage.database import Database, DatabaseOptions
from tests.support.storage import outcome
from tests.support.waiting import PATIENCE_SECONDS, eventually

FEW = DatabaseOptions(pool_size=2, timeout_seconds=PATIENCE_SECONDS)


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(postgres_url, FEW)
    yield opened
    await opened.close()


async def backend(driver: asyncpg.Connection) -> int:
    """Which of the server's processes serves the connection."""
    return int(await driver.fetchval("SELECT pg_backend_pid()"))


async def test_it_is_borrowed_once_for_many_statements(database: Database):
    borrowed: list[object] = []
    pool = database._engine.sync_engine.pool
    sa.event.listen(pool, "checkout", lambda connection, *_: borrowed.append(connection))
    backends = [await database.write_by_driver(backend) for _ in range(3)]
    assert len(set(backends)) == len(borrowed) == 1


async def test_a_second_user_gets_another_connection(database: Database):
    both = asyncio.Barrier(2)

    async def beside_the_other(driver: asyncpg.Connection) -> int:
        await both.wait()
        return await backend(driver)

    for _ in range(3):  # as many more as the pool has would hang if they were not given back
        pair = await asyncio.gather(*(database.write_by_driver(beside_the_other) for _ in range(2)))
        assert len(set(pair)) == 2


async def test_one_that_failed_is_not_used_again(database: Database):
    async def fails(driver: asyncpg.Connection) -> int:
        failed.append(await backend(driver))
        await driver.execute("SELECT 1 / 0")
        raise AssertionError("unreachable")

    failed: list[int] = []
    for _ in range(3):
        with pytest.raises(InvalidRequest):
            await database.write_by_driver(fails)
    assert len(set(failed)) == 3
    assert await database.write_by_driver(backend) not in failed


async def test_a_connection_that_the_server_closed_is_replaced(
    database: Database, postgres_url: str
):
    gone = await database.write_by_driver(backend)
    other = await asyncpg.connect(postgres_url)
    await other.execute("SELECT pg_terminate_backend($1)", gone)

    async def is_heard_of() -> bool:
        kept = database._driver._idle
        return kept is not None and kept.driver.is_closed()

    await eventually(is_heard_of)
    assert await database.write_by_driver(backend) != gone
    await other.close()


async def test_work_that_is_too_slow_is_given_up_with_its_connection(postgres_url: str):
    database = await Database.open(postgres_url, DatabaseOptions(pool_size=1, timeout_seconds=1))

    async def sleeps(driver: asyncpg.Connection) -> None:
        await driver.execute("SELECT pg_sleep(60)")

    async def is_free() -> bool:
        return isinstance(await outcome(database.write_by_driver(backend)), int)

    with pytest.raises(StorageUnavailable):
        await database.write_by_driver(sleeps)
    await eventually(is_free)
    await database.close()


async def test_nothing_is_left_open(database: Database, postgres_url: str):
    kept = await database.write_by_driver(backend)
    await database.close()
    other = await asyncpg.connect(postgres_url)

    async def is_gone() -> bool:
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1"
        return bool(await other.fetchval(query, kept) == 0)

    await eventually(is_gone)
    await other.close()
