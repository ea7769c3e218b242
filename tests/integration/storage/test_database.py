"""Transactions, retries and deadlines of the database itself."""

import asyncio
import sqlite3
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StorageUnavailable, UnknownExperiment
from service.records import Experiment
from service.storage.database import MAX_RETRIES, Database, DatabaseOptions
from service.storage.drivers.write_check import SECONDS, WriteCheck
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.tables import experiments as table
from tests.support.storage import PATIENT, decision, sqlite_url
from tests.support.waiting import PATIENCE_SECONDS


class SerializationError(Exception):
    """What a driver raises when two transactions got into each other's way."""

    sqlstate = "40001"


def failing(times: int):
    """Work that fails `times` times, and the list of its attempts."""
    attempts: list[int] = []

    async def work(connection: AsyncConnection) -> int:
        attempts.append(1)
        if len(attempts) <= times:
            raise DBAPIError("statement", {}, SerializationError())
        return len(attempts)

    return work, attempts


async def test_a_transaction_that_lost_a_race_is_run_again(database: Database):
    work, _ = failing(MAX_RETRIES)
    assert await database.write(work) == MAX_RETRIES + 1


async def test_a_transaction_that_always_loses_is_given_up(database: Database):
    work, attempts = failing(100)
    with pytest.raises(StorageUnavailable):
        await database.write(work)
    assert len(attempts) == MAX_RETRIES + 1


async def test_work_that_raises_leaves_nothing_behind(database: Database, experiments: Experiments):
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(sa.update(table).values(name="changed"))
        raise UnknownExperiment

    await experiments.create("doses", "{}")
    with pytest.raises(UnknownExperiment):
        await database.write(work)
    assert [each.name for each in await experiments.list()] == ["doses"]


async def test_a_bug_in_the_work_is_not_taken_for_a_failing_database(database: Database):
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(sa.select(table.c.name).where(table.c.nonsense))

    with pytest.raises(AttributeError):
        await database.read(work)


async def test_a_missing_table_is_unavailable_storage(database: Database):
    with pytest.raises(StorageUnavailable):
        await database.read(lambda connection: connection.execute(sa.text("SELECT 1 FROM gone")))


async def test_work_that_takes_too_long_is_given_up(database: Database):
    async def work(connection: AsyncConnection) -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(StorageUnavailable):
        await database.write(work, timeout_seconds=0.05)
    assert await database.read(lambda connection: connection.scalar(sa.select(1))) == 1


async def test_the_work_of_a_cancelled_caller_still_ends(
    database: Database, experiments: Experiments
):
    task = asyncio.create_task(experiments.create("doses", "{}"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    await database.close()
    assert (await experiments.get("doses")).name == "doses"


async def test_sqlite_is_durable_and_checks_its_keys(sqlite_template: Path):
    database = await Database.open(sqlite_url(sqlite_template), PATIENT)
    expected = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
    for name, value in expected.items():
        query = sa.text(f"PRAGMA {name}")
        assert (await database.read(partial(AsyncConnection.scalar, statement=query))) == value
    await database.close()


async def test_a_locked_sqlite_refuses_in_time_and_comes_back(tmp_path: Path):
    path = tmp_path / "service.db"
    options = DatabaseOptions(timeout_seconds=PATIENCE_SECONDS, lock_timeout_seconds=0.05)
    database = await Database.open(sqlite_url(path), options)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable):
        await database.write(lambda connection: connection.execute(sa.select(1)))
    other.execute("ROLLBACK")
    other.close()
    await database.write(lambda connection: connection.execute(sa.select(1)))
    await database.close()


async def test_other_databases_are_refused():
    with pytest.raises(ValueError, match="sqlite or postgresql"):
        await Database.open("mysql://localhost/daband")


async def test_the_dialect_is_known(database: Database, database_url: str):
    assert database_url.startswith(database.dialect)


async def test_failures_are_translated_by_kind(tmp_path: Path):
    received: list[str] = []
    database = await Database.open(sqlite_url(tmp_path / "service.db"), PATIENT, received.append)
    with pytest.raises(StorageUnavailable):
        await database.write(failing(100)[0])
    assert received == ["retried"] * MAX_RETRIES + ["refused"]
    with pytest.raises(StorageUnavailable):
        await database.write(lambda _: asyncio.get_running_loop().create_future(), 0.05)
    assert received[-1] == "timeout"
    await database.close()


async def test_a_new_event_shows_that_the_database_can_be_written(
    database: Database, event_log: EventLog, experiment: Experiment
):
    moments, writes = [100.0], []

    async def write() -> None:
        writes.append(moments[0])

    database._write_check = WriteCheck(write, lambda: moments[0])
    event = decision(experiment)
    await event_log.append([event])
    await database.check_writable()
    assert writes == []
    moments[0] += SECONDS
    (appended,) = await event_log.append([event])  # it is there already: nothing is written
    await database.check_writable()
    assert (appended.created, len(writes)) == (False, 1)


async def test_the_check_writes_for_real(database: Database):
    for _ in range(2):
        await database._write_little()


async def test_all_connections_of_sqlite_are_closed_however_slow_the_machine_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """An open one would warn, whenever it is collected, in the midst of something else."""
    opened: list[DBAPIConnection] = []
    database = await Database.open(sqlite_url(tmp_path / "service.db"), PATIENT)
    pool = database._engine.pool
    sa.event.listen(pool, "connect", lambda connection, _: opened.append(connection))
    await asyncio.gather(
        *(database.read(lambda each: each.execute(sa.text("SELECT 1"))) for _ in range(3))
    )
    monkeypatch.setattr("service.storage.database.CLOSE_SECONDS", 0.0)
    await database.close()
    assert opened
    for connection in opened:
        assert connection.driver_connection is not None
        with pytest.raises(ValueError, match="no active connection"):
            await connection.driver_connection.execute("SELECT 1")


async def test_work_on_sqlite_ends_before_its_connections_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A connection that is returned later would stay open."""
    monkeypatch.setattr("service.storage.database.CLOSE_SECONDS", 0.0)
    database = await Database.open(sqlite_url(tmp_path / "service.db"), PATIENT)
    has_begun, may_end = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def work(connection: AsyncConnection) -> None:
        has_begun.set()
        await may_end.wait()
        await connection.execute(sa.text("SELECT 1"))
        ended.append("work")

    async def close() -> None:
        await database.close()
        ended.append("close")

    reading = asyncio.create_task(database.read(work))
    await has_begun.wait()
    closing = asyncio.create_task(close())
    asyncio.get_running_loop().call_later(0.2, may_end.set)
    await asyncio.gather(reading, closing)
    assert ended == ["work", "close"]
