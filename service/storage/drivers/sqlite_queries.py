"""Single queries on SQLite, each in a thread as a whole."""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa

Row = sa.Row[*tuple[Any, ...]]
Parameters = Mapping[str, Any] | None
Query = sa.Select[*tuple[Any, ...]] | sa.CompoundSelect[*tuple[Any, ...]]


class SqliteQueries:
    """Runs queries by SQLAlchemy on blocking connections, in a pool of threads.

    aiosqlite hands every step of a query to a thread and back: five times as much work for the event loop.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], pool_size: int) -> None:
        self._engine = sa.create_engine(
            "sqlite://",
            creator=connect,
            poolclass=sa.QueuePool,
            pool_size=pool_size,
            max_overflow=0,
        )
        self._pool_size = pool_size
        self._threads: ThreadPoolExecutor | None = None

    async def rows(self, query: Query, parameters: Parameters) -> Sequence[Row]:
        """All rows that the query finds."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._pool_size, thread_name_prefix="sqlite-query")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._rows, query, parameters)

    async def close(self) -> None:
        """Wait for running queries, then close all connections."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
        self._engine.dispose()

    def _rows(self, query: Query, parameters: Parameters) -> Sequence[Row]:
        # Without BEGIN: a single statement is a transaction of its own.
        with self._engine.connect() as connection:
            return connection.execute(query, parameters).all()
