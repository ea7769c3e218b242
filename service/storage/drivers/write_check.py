"""Whether the database can be written: shown by a write, at most once a second."""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable

import asyncpg

from service.errors import StorageUnavailable

SECONDS = 1.0


class WriteCheck:
    """Trusts a write for a second, and makes a small one of its own when there was none.

    `write` raises `StorageUnavailable` when it fails.
    """

    def __init__(
        self, write: Callable[[], Awaitable[None]], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self.now = now
        self.written_at = -SECONDS  # by anybody
        self._next_write = 0.0
        self._writing: asyncio.Future[None] | None = None

    async def check(self) -> None:
        """Raise `StorageUnavailable` unless the database could be written within the last second."""
        now = self.now()
        if now < self.written_at + SECONDS:
            return
        writing = self._writing
        if writing is None or (writing.done() and now >= self._next_write):
            self._next_write = now + SECONDS
            writing = self._writing = asyncio.ensure_future(self._write())
        await asyncio.wait({writing})  # others may wait for the same one
        if writing.exception() is not None:
            raise StorageUnavailable from writing.exception()


def write_little_to_sqlite(connection: sqlite3.Connection) -> None:
    """Change a number in the file's header; what is rolled back would not reach the disk."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {(version + 1) % 2**31}")


# A full disk still takes small updates, which fit into pages that are there, while appends fail. So a
# file is extended, that of a temporary table, which is emptied again. The message assigns a transaction
# id, without which the commit would not wait for the disk, and leaves nothing but its place in the WAL.
LITTLE_WRITE = """
CREATE TEMPORARY TABLE IF NOT EXISTS write_check (filler text) ON COMMIT DELETE ROWS;
INSERT INTO write_check SELECT repeat('x', 1000) FROM generate_series(1, 64);
SELECT pg_logical_emit_message(true, 'daband', 'write check');
"""


async def write_little_to_postgres(connection: asyncpg.Connection) -> None:
    """Extend a file and wait for the WAL: both can be full."""
    await connection.execute(LITTLE_WRITE)
