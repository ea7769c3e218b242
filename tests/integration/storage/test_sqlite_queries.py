"""Single queries on SQLite: each a thread's work as a whole, several at once, none left open."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from service.errors import StorageUnavailable
from service.storage.database import Database
from service.storage.drivers.sqlite_queries import SqliteQueries
from service.storage.experiments import Experiments
from service.storage.tables import experiments as table
from tests.support.storage import PATIENT, sqlite_url
from tests.support.waiting import PATIENCE_SECONDS

TOGETHER = 3


class Connections:
    """Opens connections whose function `meet` waits until as many queries run at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._meeting = threading.Barrier(TOGETHER, timeout=PATIENCE_SECONDS)
        self.opened: list[sqlite3.Connection] = []

    def __call__(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.create_function("meet", 0, self._meeting.wait)
        self.opened.append(connection)
        return connection


@pytest.fixture
def connections(tmp_path: Path) -> Connections:
    return Connections(tmp_path / "service.db")


@pytest.fixture
async def queries(connections: Connections) -> AsyncIterator[SqliteQueries]:
    made = SqliteQueries(connections, TOGETHER)
    yield made
    await made.close()


async def test_a_query_is_handed_to_a_thread_and_back_once(
    queries: SqliteQueries, monkeypatch: pytest.MonkeyPatch
):
    await queries.rows(sa.select(sa.literal(1)), None)  # connects
    loop, handed_back = asyncio.get_running_loop(), []
    call_soon = loop.call_soon_threadsafe

    def counted(*given: Any, **options: Any) -> asyncio.Handle:
        handed_back.append(1)
        return call_soon(*given, **options)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    assert await queries.rows(sa.select(sa.literal(2)), None) == [(2,)]
    assert handed_back == [1]


async def test_queries_do_not_wait_for_one_another(queries: SqliteQueries):
    met = [queries.rows(sa.select(sa.func.meet()), None) for _ in range(TOGETHER)]
    assert sorted(rows[0][0] for rows in await asyncio.gather(*met)) == list(range(TOGETHER))


async def test_all_connections_are_closed_and_opened_when_needed(
    queries: SqliteQueries, connections: Connections
):
    await queries.rows(sa.select(sa.literal(1)), None)
    await queries.close()
    for each in connections.opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            each.execute("SELECT 1")
    assert await queries.rows(sa.select(sa.literal(1)), None) == [(1,)]
    assert len(connections.opened) == 2


async def test_a_query_sees_what_was_written_before(database: Database, experiments: Experiments):
    query = sa.select(table.c.name).where(table.c.name == sa.bindparam("wanted"))
    assert await database.rows(query, parameters={"wanted": "doses"}) == []
    assert await database.scalar(sa.select(table.c.name)) is None
    await experiments.create("doses", "{}")
    assert await database.rows(query, parameters={"wanted": "doses"}) == [("doses",)]
    assert await database.scalar(sa.select(table.c.name)) == "doses"


async def test_a_query_that_fails_is_unavailable_storage(tmp_path: Path):
    received: list[str] = []
    database = await Database.open(sqlite_url(tmp_path / "service.db"), PATIENT, received.append)
    with pytest.raises(StorageUnavailable):
        await database.rows(sa.select(sa.text("1")).select_from(sa.table("gone")))
    assert received == ["refused"]
    await database.close()
