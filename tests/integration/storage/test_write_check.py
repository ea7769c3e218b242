"""Whether the database can be written: asked often, tried at most once a second."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from service.errors import StorageUnavailable
from service.storage.drivers.write_check import SECONDS, WriteCheck, write_little_to_sqlite
from tests.support.storage import outcome
from tests.support.waiting import eventually


class Writes:
    """Counts the writes, which fail or wait as a test wants; and a clock that only the test moves."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.now = 100.0

    async def __call__(self) -> None:
        self.count += 1
        await self.may_end.wait()
        if self.fails:
            raise StorageUnavailable

    def check(self) -> WriteCheck:
        return WriteCheck(self, lambda: self.now)


async def test_asked_often_it_writes_once_a_second():
    writes = Writes()
    check = writes.check()
    for _ in range(5):
        for _ in range(10):
            await check.check()
        writes.now += SECONDS
    assert writes.count == 5


async def test_concurrent_checks_share_a_write():
    writes = Writes()
    check = writes.check()
    writes.may_end.clear()
    asking = [asyncio.create_task(check.check()) for _ in range(10)]
    await eventually(lambda: writes.count == 1)
    writes.now += 10 * SECONDS  # a slow one is not joined by a second
    asking.append(asyncio.create_task(check.check()))
    await asyncio.sleep(0)
    writes.may_end.set()
    await asyncio.gather(*asking)
    assert writes.count == 1


async def test_a_cancelled_check_does_not_cancel_the_others():
    writes = Writes()
    check = writes.check()
    writes.may_end.clear()
    gone, stays = (asyncio.create_task(check.check()) for _ in range(2))
    await eventually(lambda: writes.count == 1)
    gone.cancel()
    await asyncio.wait({gone})
    writes.may_end.set()
    await stays


async def test_an_append_counts_as_a_write():
    writes = Writes()
    check = writes.check()
    check.written_at = writes.now
    await check.check()
    assert writes.count == 0
    writes.now += SECONDS
    await check.check()
    assert writes.count == 1


async def test_a_failure_is_reported_until_a_write_succeeds():
    writes = Writes()
    check = writes.check()
    writes.fails = True
    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            await check.check()
    assert writes.count == 1
    writes.fails = False
    assert isinstance(await outcome(check.check()), StorageUnavailable)
    writes.now += SECONDS
    await check.check()


async def test_an_append_after_a_failure_shows_that_all_is_well():
    writes = Writes()
    check = writes.check()
    writes.fails = True
    assert isinstance(await outcome(check.check()), StorageUnavailable)
    check.written_at = writes.now
    await check.check()


def test_the_write_to_sqlite_reaches_its_file(tmp_path: Path):
    path, log = tmp_path / "some.db", tmp_path / "some.db-wal"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    for _ in range(3):
        before = log.stat().st_size if log.exists() else 0
        connection.execute("BEGIN IMMEDIATE")
        write_little_to_sqlite(connection)
        connection.execute("COMMIT")
        assert log.stat().st_size > before
    connection.execute(f"PRAGMA user_version = {2**31 - 1}")
    write_little_to_sqlite(connection)
    assert connection.execute("PRAGMA user_version").fetchone() == (0,)
    connection.close()
