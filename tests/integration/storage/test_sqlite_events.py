"""The log on SQLite: appended to by one thread, next to other writers."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StorageUnavailable
from service.records import Experiment
from service.storage.database import MAX_RETRIES, Database, DatabaseOptions
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from tests.support.storage import (
    PATIENT,
    PATIENT_COMMIT,
    append_decision,
    decision,
    outcome,
    reward,
    running,
)
from tests.support.waiting import PATIENCE_SECONDS, eventually

# A locked file is an error at once; the lock inside the process is waited for.
HASTY = DatabaseOptions(timeout_seconds=PATIENCE_SECONDS, lock_timeout_seconds=0.001)


@pytest.fixture
async def experiment(url: str) -> Experiment:
    async with Database.opened(url, PATIENT) as database:
        return await Experiments(database).create("doses", "{}")


@pytest.fixture
def errors() -> list[str]:
    return []


@pytest.fixture
async def database(url: str, errors: list[str]) -> AsyncIterator[Database]:
    opened = await Database.open(url, HASTY, errors.append)
    yield opened
    await opened.close()


@pytest.fixture
async def log(database: Database) -> AsyncIterator[EventLog]:
    made = EventLog(database, PATIENT_COMMIT)
    async with running(made.run()):
        yield made
        await made.close()


def blocking(connection: sqlite3.Connection, may_end: threading.Event) -> None:
    """Hold the thread, and SQLite's write lock, until the event is set."""
    may_end.wait()


async def test_appends_and_look_ups_do_not_pass_sqlalchemy(
    database: Database, log: EventLog, experiment: Experiment
):
    run: list[object] = []
    for engine in (database._engine.sync_engine, database._queries._engine):
        sa.event.listen(engine, "before_cursor_execute", lambda *given: run.append(given))
    decision_id = await append_decision(log, experiment, request_id="r-1")
    await log.append([reward(experiment, decision_id)])
    assert await log.find_decision(decision_id) is not None
    assert run == []
    assert await log.last_offset(experiment.experiment_id) == 2
    assert len(run) == 1  # other reads do


async def test_many_look_ups_find_what_is_there(log: EventLog, experiment: Experiment):
    appended = await log.append([decision(experiment) for _ in range(2500)])
    ids = [each.event.event_key for each in appended]
    found = await log.find_decisions([*ids, "none"])
    assert found.keys() == set(ids)
    assert found[ids[0]].context is None
    assert await log.find_decisions([]) == {}


async def test_an_append_waits_for_another_writer_of_the_process(
    database: Database, log: EventLog, experiment: Experiment, errors: list[str]
):
    is_writing, may_end = asyncio.Event(), asyncio.Event()

    async def write(connection: AsyncConnection) -> None:
        is_writing.set()
        await may_end.wait()

    async with running(database.write(write)):
        await is_writing.wait()
        appending = asyncio.create_task(log.append([decision(experiment)]))
        await eventually(lambda: database._write_lock.waiting > 0)
        # Had it been handed to the thread, the thread would have been refused by now.
        await database._writing_thread._submit(lambda: None, lambda: None)
        may_end.set()
        await appending
    assert errors == []


async def test_an_append_goes_before_the_writers_that_wait(
    database: Database, log: EventLog, experiment: Experiment, errors: list[str]
):
    experiments, is_writing, may_end = Experiments(database), asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def write(connection: AsyncConnection) -> None:
        is_writing.set()
        await may_end.wait()

    async def create(name: str) -> None:
        await experiments.create(name, "{}")
        ended.append(name)

    async def append() -> None:
        await log.append([decision(experiment)])
        ended.append("an append")

    async with running(database.write(write)):
        await is_writing.wait()
        names = [f"e-{number}" for number in range(5)]
        waiting = [asyncio.create_task(create(name)) for name in names]
        await eventually(lambda: database._write_lock.waiting == len(names))
        waiting.append(asyncio.create_task(append()))
        await eventually(lambda: database._write_lock.waiting == len(names) + 1)
        may_end.set()
        await asyncio.gather(*waiting)
    assert ended == ["an append", *names]
    assert errors == []


async def test_another_writer_of_the_process_waits_for_an_append(
    database: Database, experiment: Experiment, errors: list[str]
):
    may_end = threading.Event()
    appending = asyncio.create_task(
        database.write_in_thread(lambda connection: blocking(connection, may_end))
    )
    await eventually(database._write_lock.locked)
    other = asyncio.create_task(Experiments(database).create("other", "{}"))
    await eventually(lambda: len(database._running) > 0)
    may_end.set()
    await asyncio.gather(appending, other)
    assert errors == []


async def test_a_write_that_takes_too_long_is_given_up_and_still_ends_alone(
    url: str, experiment: Experiment, errors: list[str]
):
    options = DatabaseOptions(timeout_seconds=0.05, lock_timeout_seconds=PATIENCE_SECONDS)
    database = await Database.open(url, options, errors.append)
    may_end = threading.Event()

    def write(connection: sqlite3.Connection) -> None:
        blocking(connection, may_end)
        connection.execute("UPDATE experiments SET epoch = epoch + 1")

    with pytest.raises(StorageUnavailable):
        await database.write_in_thread(write)
    assert errors == ["timeout"]
    assert database._write_lock.locked()  # the next writer waits here, not in SQLite
    may_end.set()
    await eventually(lambda: not database._write_lock.locked())
    await database.close()
    async with Database.opened(url, PATIENT) as patient:
        assert (await Experiments(patient).get("doses")).epoch == 1


async def test_a_file_that_another_process_has_locked_is_tried_again_then_refused(
    url: str, log: EventLog, experiment: Experiment, errors: list[str]
):
    other = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StorageUnavailable):
        await append_decision(log, experiment)
    assert errors == ["retried"] * MAX_RETRIES + ["refused"]
    other.execute("ROLLBACK")
    other.close()
    await append_decision(log, experiment)


async def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path):
    path = tmp_path / "broken.db"
    path.write_bytes(b"no database" * 1000)
    database = await Database.open(f"sqlite:///{path}", PATIENT)
    result = await outcome(database.write_in_thread(lambda connection: None))
    assert isinstance(result, StorageUnavailable)
    await database.close()
