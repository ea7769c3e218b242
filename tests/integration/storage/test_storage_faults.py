"""A Postgres that dies, hangs, or breaks off in the middle: nothing acknowledged is lost."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from functools import partial

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StorageUnavailable
from service.records import Experiment, Lease, NewEvent, uuid7
from service.storage.database import Database, DatabaseOptions
from service.storage.events.group_commit import CommitOptions
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.leases import Leases
from tests.support.measuring import Measured
from tests.support.processes.faulty_proxy import Fault, FaultyProxy
from tests.support.processes.servers import PostgresServer, running_server
from tests.support.storage import (
    PATIENT,
    append_decision,
    decision,
    migrated,
    opened_log,
    outcome,
    running,
)
from tests.support.waiting import PATIENCE_SECONDS, eventually

IMPATIENT = DatabaseOptions(pool_size=2, timeout_seconds=5, lock_timeout_seconds=2.5)
BOUND_SECONDS = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """One for the whole module; each test finds it running."""
    with running_server(PostgresServer()) as started:
        asyncio.run(migrated(started.url()))
        yield started


@pytest.fixture(autouse=True)
def healthy(server: PostgresServer) -> Iterator[None]:
    yield
    server.resume()
    if not server.is_running:
        server.start()


@pytest.fixture
async def experiment(server: PostgresServer) -> Experiment:
    async with Database.opened(server.url(), PATIENT) as database:
        return await Experiments(database).create(uuid7(), "{}")


@pytest.fixture
async def log(server: PostgresServer) -> AsyncIterator[EventLog]:
    async with opened_log(server.url(), IMPATIENT, CommitOptions(timeout_seconds=5)) as opened:
        yield opened


async def is_written(log: EventLog, experiment: Experiment) -> bool:
    """Whether the database takes a decision now: a busy machine may need several attempts."""
    return isinstance(await outcome(append_decision(log, experiment)), str)


async def keys_in_log(server: PostgresServer, experiment: Experiment) -> list[str]:
    async with opened_log(server.url()) as log:
        events = await log.read(experiment.experiment_id, after=0, limit=100_000)
    assert [event.offset for event in events] == list(range(1, len(events) + 1))
    return [event.event_key for event in events]


async def test_no_acknowledged_event_is_lost_when_postgres_is_killed(
    server: PostgresServer, log: EventLog, experiment: Experiment
):
    acknowledged: list[str] = []

    async def is_acknowledged(event: NewEvent) -> bool:
        return isinstance(await outcome(log.append([event])), list)

    async def client() -> None:
        """Sends each event until it is acknowledged, as a real client does."""
        while True:
            event = decision(experiment)
            await eventually(partial(is_acknowledged, event))
            acknowledged.append(event.event_key)

    async def more(count: int) -> None:
        goal = len(acknowledged) + count
        await eventually(lambda: len(acknowledged) >= goal)

    async with running(*(client() for _ in range(4))):
        for _ in range(2):
            await more(50)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
        await more(50)
    stored = await keys_in_log(server, experiment)
    assert set(acknowledged) <= set(stored)
    assert len(stored) == len(set(stored))


async def test_after_a_restart_at_most_one_request_fails(
    server: PostgresServer, experiment: Experiment
):
    async with opened_log(server.url()) as log:
        await append_decision(log, experiment)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        results = [await is_written(log, experiment) for _ in range(5)]
    assert results[1:] == [True] * 4


async def test_a_database_that_is_down_is_unavailable_and_comes_back(
    server: PostgresServer, log: EventLog, experiment: Experiment
):
    server.stop()
    with pytest.raises(StorageUnavailable) as caught:
        await append_decision(log, experiment)
    assert caught.value.retry_after_seconds
    with pytest.raises(StorageUnavailable):
        await log.last_offset(experiment.experiment_id)
    await asyncio.to_thread(server.start)
    await eventually(partial(is_written, log, experiment))


async def test_a_database_that_hangs_is_given_up_in_time_and_comes_back(
    server: PostgresServer, log: EventLog, experiment: Experiment, measured: Measured
):
    await eventually(partial(is_written, log, experiment))
    server.pause()
    started = time.monotonic()
    results = await asyncio.gather(
        *(outcome(append_decision(log, experiment)) for _ in range(5)),
        *(outcome(log.last_offset(experiment.experiment_id)) for _ in range(5)),
    )
    assert {type(each) for each in results} == {StorageUnavailable}
    measured.at_most("seconds to give up", time.monotonic() - started, BOUND_SECONDS)
    server.resume()
    await eventually(partial(is_written, log, experiment))


@pytest.mark.parametrize("fault", [Fault.RESET_BEFORE, Fault.RESET_AFTER])
async def test_an_append_whose_commit_broke_off_can_be_sent_again(
    server: PostgresServer, experiment: Experiment, fault: Fault
):
    async with FaultyProxy(server.port).running() as proxy:
        url = server.url().replace(str(server.port), str(proxy.port))
        async with opened_log(url) as log:
            await append_decision(log, experiment)
            event = decision(experiment, request_id="r-1")
            proxy.fault = fault
            with pytest.raises(StorageUnavailable):
                await log.append([event])
            assert proxy.strikes == 1
            (appended,) = await log.append([event])
    assert appended.created is (fault is Fault.RESET_BEFORE)
    assert (await keys_in_log(server, experiment)).count(event.event_key) == 1


async def test_a_full_pool_refuses(
    server: PostgresServer, experiment: Experiment, measured: Measured
):
    database = await Database.open(server.url(), IMPATIENT)
    blocker = await asyncpg.connect(server.url())
    transaction = blocker.transaction()
    await transaction.start()
    await blocker.execute(
        "SELECT 1 FROM experiments WHERE experiment_id = $1 FOR UPDATE", experiment.experiment_id
    )
    leases = Leases(database)
    started = time.monotonic()
    results = await asyncio.gather(
        *(outcome(leases.acquire(experiment.experiment_id, "a")) for _ in range(50))
    )
    assert {type(each) for each in results} == {StorageUnavailable}
    measured.at_most("seconds to refuse", time.monotonic() - started, BOUND_SECONDS)
    await transaction.rollback()
    await blocker.close()

    async def is_acquired() -> bool:
        return isinstance(await outcome(leases.acquire(experiment.experiment_id, "a")), Lease)

    await eventually(is_acquired)
    await database.close()


async def test_a_writer_that_stops_in_a_transaction_loses_its_lock(
    server: PostgresServer, log: EventLog, experiment: Experiment
):
    options = DatabaseOptions(
        timeout_seconds=PATIENCE_SECONDS, idle_transaction_timeout_seconds=0.3
    )
    stopped = await Database.open(server.url(), options)
    is_locked, may_end = asyncio.Event(), asyncio.Event()

    async def lock_and_stop(connection: AsyncConnection) -> None:
        await connection.exec_driver_sql("SELECT 1 FROM experiments FOR UPDATE")
        is_locked.set()
        await may_end.wait()

    work = asyncio.create_task(outcome(stopped.write(lock_and_stop)))
    await is_locked.wait()
    await eventually(partial(is_written, log, experiment))
    may_end.set()
    assert isinstance(await work, StorageUnavailable)
    await stopped.close()


async def test_a_cancelled_reader_leaves_no_connection_behind(
    server: PostgresServer, experiment: Experiment
):
    database = await Database.open(server.url(), IMPATIENT)
    log = EventLog(database)
    for _ in range(20):
        task = asyncio.create_task(log.last_offset(experiment.experiment_id))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task})

    async def is_served() -> bool:
        return isinstance(await outcome(log.last_offset(experiment.experiment_id)), int)

    await eventually(is_served)
    await database.close()


async def test_a_check_tells_whether_the_database_can_be_written(server: PostgresServer):
    database = await Database.open(server.url(), IMPATIENT)

    async def is_writable() -> bool:
        return await outcome(database.check_writable()) is None

    async def is_refused() -> bool:
        return not await is_writable()

    await eventually(is_writable)
    server.stop()
    await eventually(is_refused)  # the last check counts for a second
    await database.close()


async def test_closing_does_not_wait_for_a_database_that_hangs(server: PostgresServer):
    database = await Database.open(server.url(), PATIENT)
    await database.check_writable()
    server.pause()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await database.close()
