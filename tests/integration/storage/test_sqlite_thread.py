"""The thread that owns a connection to SQLite: its transactions, and what becomes of failed ones."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.storage.drivers.sqlite_thread import SqliteThread
from tests.support.waiting import eventually


class Stubborn(sqlite3.Connection):
    """A connection that cannot roll back, as after a failure of the disk."""

    def rollback(self) -> None:
        raise sqlite3.OperationalError("disk I/O error")


class Connections:
    """Opens connections to a file, the first of them stubborn if asked to, and counts them."""

    def __init__(self, path: Path, *, is_first_stubborn: bool = False) -> None:
        self._path = path
        self._is_first_stubborn = is_first_stubborn
        self.opened: list[sqlite3.Connection] = []
        self.threads: set[threading.Thread] = set()

    def __call__(self) -> sqlite3.Connection:
        is_stubborn = self._is_first_stubborn and not self.opened
        factory = Stubborn if is_stubborn else sqlite3.Connection
        connection = sqlite3.connect(
            self._path, isolation_level=None, check_same_thread=False, factory=factory
        )
        connection.execute("CREATE TABLE IF NOT EXISTS numbers (number INTEGER)")
        self.opened.append(connection)
        self.threads.add(threading.current_thread())
        return connection


@pytest.fixture
def connections(tmp_path: Path) -> Connections:
    return Connections(tmp_path / "numbers.db")


@pytest.fixture
async def thread(connections: Connections) -> AsyncIterator[SqliteThread]:
    made = SqliteThread(connections, "BEGIN IMMEDIATE")
    yield made
    await made.close()


def insert(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO numbers VALUES (1)")
    return count(connection)


def insert_and_fail(connection: sqlite3.Connection) -> None:
    insert(connection)
    raise ValueError("not this time")


def count(connection: sqlite3.Connection) -> int:
    (found,) = connection.execute("SELECT count(*) FROM numbers").fetchone()
    return int(found)


async def test_work_is_committed_and_its_result_returned(
    thread: SqliteThread, connections: Connections
):
    assert [await thread.transact(insert) for _ in range(3)] == [1, 2, 3]
    assert (count(connections()), len(connections.opened)) == (3, 2)  # the second is the test's


async def test_work_runs_in_one_other_thread(thread: SqliteThread, connections: Connections):
    used = {await thread.transact(lambda _: threading.current_thread()) for _ in range(3)}
    assert used == connections.threads
    assert threading.current_thread() not in used


async def test_work_that_fails_leaves_nothing_behind(thread: SqliteThread):
    with pytest.raises(ValueError, match="not this time"):
        await thread.transact(insert_and_fail)
    assert await thread.transact(insert) == 1


async def test_a_connection_that_cannot_roll_back_is_replaced(tmp_path: Path):
    connections = Connections(tmp_path / "numbers.db", is_first_stubborn=True)
    thread = SqliteThread(connections, "BEGIN IMMEDIATE")
    with pytest.raises(ValueError, match="not this time"):
        await thread.transact(insert_and_fail)
    assert await thread.transact(insert) == 1
    assert len(connections.opened) == 2
    await thread.close()


async def test_the_end_is_reported_without_a_waiter(thread: SqliteThread):
    may_end, ends = threading.Event(), asyncio.Event()

    def work(connection: sqlite3.Connection) -> int:
        may_end.wait()
        return insert(connection)

    waiting = thread.transact(work, on_end=ends.set)
    waiting.cancel()
    assert not ends.is_set()
    may_end.set()
    await eventually(ends.is_set)
    assert await thread.transact(count) == 1  # it was committed all the same


async def test_closing_waits_for_the_transaction_and_ends_the_thread(
    thread: SqliteThread, connections: Connections
):
    may_end = threading.Event()

    def work(connection: sqlite3.Connection) -> int:
        may_end.wait()
        return insert(connection)

    running = thread.transact(work)
    closing = asyncio.create_task(thread.close())
    may_end.set()
    assert await running == 1
    await closing
    (used,) = connections.threads
    await eventually(lambda: not used.is_alive())
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections.opened[0].execute("SELECT 1")


async def test_a_closed_thread_can_be_used_again(thread: SqliteThread):
    await thread.transact(insert)
    await thread.close()
    assert await thread.transact(insert) == 2


async def test_one_that_was_never_used_is_closed_at_once(connections: Connections):
    await SqliteThread(connections, "BEGIN").close()
    assert connections.opened == []


def test_a_loop_that_is_gone_is_no_error_of_the_thread(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
):
    errors: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    may_end = threading.Event()
    thread = SqliteThread(connections, "BEGIN IMMEDIATE")

    def work(connection: sqlite3.Connection) -> int:
        may_end.wait()
        return insert(connection)

    async def leave() -> None:
        thread.transact(work)

    asyncio.run(leave())
    may_end.set()
    asyncio.run(thread.close())
    assert errors == []
