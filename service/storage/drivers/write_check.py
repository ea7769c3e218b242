"""Checks whether the database is writable, by a small write at most once a second."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable

import asyncpg

from service.errors import StorageUnavailable

SECONDS = 1.0


class WriteCheck:
    """Trusts any write for a second, and otherwise makes a small one itself.

    `write` must raise `StorageUnavailable` if it fails.
    """

    def __init__(
        self, write: Callable[[], Awaitable[None]], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self.now = now
        self.written_at = -SECONDS  # by any writer
        self._next_write = 0.0
        self._writing: asyncio.Future[None] | None = None

    async def check(self) -> None:
        """Raise `StorageUnavailable` unless the database was writable within the last second."""
        now = self.now()
        if now < self.written_at + SECONDS:
            return
        writing = self._writing
        if writing is None or (writing.done() and now >= self._next_write):
            self._next_write = now + SECONDS
            writing = self._writing = asyncio.ensure_future(self._write())
        await asyncio.wait({writing})  # several callers may wait for the same write
        if writing.exception() is not None:
            raise StorageUnavailable from writing.exception()


def write_little_to_sqlite(connection: sqlite3.Connection) -> None:
    """Change a number in the file's header; a rolled back write would not reach the disk."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {(version + 1) % 2**31}")


# On a full disk small updates still succeed in existing pages while appends fail. So this extends the file
# of a temporary table, which is emptied again. The logical message assigns a transaction id, without which
# the commit would not wait for the WAL.
LITTLE_WRITE = """
CREATE TEMPORARY TABLE IF NOT EXISTS write_check (filler text) ON COMMIT DELETE ROWS;
INSERT INTO write_check SELECT repeat('x', 1000) FROM generate_series(1, 64);
SELECT pg_logical_emit_message(true, 'daband', 'write check');
"""


async def write_little_to_postgres(connection: asyncpg.Connection) -> None:
    """Extend a file and wait for the WAL: either disk can be full."""
    await connection.execute(LITTLE_WRITE)
