"""Transactions, deadlines and retries, on SQLite or Postgres."""

import asyncio
import logging
import random
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple, TypeVar

import asyncpg
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.errors import StorageUnavailable
from service.storage.drivers.driver_errors import DRIVER_ERRORS, is_transient, translate
from service.storage.drivers.engines import connect_sqlite, create_engine
from service.storage.drivers.options import DatabaseOptions
from service.storage.drivers.sqlite_queries import Parameters, Query, Row, SqliteQueries
from service.storage.drivers.sqlite_thread import SqliteThread
from service.storage.drivers.write_check import (
    WriteCheck,
    write_little_to_postgres,
    write_little_to_sqlite,
)
from service.storage.drivers.write_lock import WriteLock

__all__ = ["Database", "DatabaseOptions"]

T = TypeVar("T")
Work = Callable[[AsyncConnection], Awaitable[T]]
BlockingWork = Callable[[sqlite3.Connection], T]

MAX_RETRIES = 3
CLOSE_SECONDS = 3.0

log = logging.getLogger(__name__)


class Database:
    """Runs work in transactions; raises only `ServiceError`s.

    Broken connections are replaced, so a database is used again as soon as it is back. After a timeout or
    a lost connection the outcome of a commit is unknown: all writes can be repeated with the same ids.
    `on_error` is called with the kind of every failure: timeout, refused or retried.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        options: DatabaseOptions,
        on_error: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self.options = options
        self._on_error = on_error
        self._is_quiet = False
        self._engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"
        # On Postgres a single statement needs no BEGIN and COMMIT.
        autocommitting = {} if self._is_sqlite else {"isolation_level": "AUTOCOMMIT"}
        self._reader = engine.execution_options(**autocommitting)
        self._writer = engine.execution_options(is_writer=True)
        self._driver = KeptDriver(engine)
        connect = partial(connect_sqlite, engine, options)
        self._queries = SqliteQueries(connect, options.pool_size)
        self._reading_thread = SqliteThread(connect, "BEGIN")
        self._writing_thread = SqliteThread(connect, "BEGIN IMMEDIATE")
        # SQLite has one writer at a time: this lock keeps an order, its busy handler does not.
        self._write_lock = WriteLock()
        self._free_connections = asyncio.Semaphore(options.pool_size)
        self._running: set[asyncio.Task[Any]] = set()
        self._write_check = WriteCheck(self._write_little)

    @classmethod
    async def open(
        cls,
        url: str,
        options: DatabaseOptions | None = None,
        on_error: Callable[[str], None] = lambda kind: None,
    ) -> "Database":
        """A database that connects when it is first used."""
        options = options or DatabaseOptions()
        return cls(create_engine(url, options), options, on_error)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        url: str,
        options: DatabaseOptions | None = None,
        on_error: Callable[[str], None] = lambda kind: None,
    ) -> AsyncIterator["Database"]:
        """The same, closed at the end."""
        database = await cls.open(url, options, on_error)
        try:
            yield database
        finally:
            await database.close()

    @contextmanager
    def failing_quietly(self) -> Iterator[None]:
        """Log no failure meanwhile: the caller does."""
        self._is_quiet = True
        try:
            yield
        finally:
            self._is_quiet = False

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    async def read(self, work: Work[T], timeout_seconds: float | None = None) -> T:
        """The result of `work`; each of its statements sees all earlier commits."""
        once = partial(self._transaction, self._reader, work)
        return await self._bounded(self._attempts(once), timeout_seconds)

    async def rows(
        self,
        query: Query,
        timeout_seconds: float | None = None,
        parameters: Parameters = None,
    ) -> Sequence[Row]:
        """The rows of a single query; cheaper than `read`."""
        if self._is_sqlite:
            once = partial(self._queries.rows, query, parameters)
        else:
            once = partial(self._transaction, self._reader, partial(_rows, query, parameters))
        return await self._bounded(self._attempts(once), timeout_seconds)

    async def scalar(self, query: Query, timeout_seconds: float | None = None) -> Any:
        """The first value of a single query; None without a row."""
        rows = await self.rows(query, timeout_seconds)
        return rows[0][0] if rows else None

    async def write(self, work: Work[T], timeout_seconds: float | None = None) -> T:
        """The result of `work` once its transaction is durable.

        `work` may run more than once, so it must only use the database. On SQLite it holds the write
        lock from the start.
        """
        once = partial(self._transaction, self._writer, work)
        return await self._bounded(self._attempts(once), timeout_seconds)

    async def write_by_driver(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """`write` on Postgres with asyncpg's own connection; `work` ends its transactions itself."""
        return await self._bounded(self._attempts(partial(self._driver.use, work)), None)

    async def read_in_thread(self, work: BlockingWork[T]) -> T:
        """`read` on SQLite with sqlite3 in a thread, ten times as fast."""
        return await self._in_time(self._attempts(partial(self._reading_thread.transact, work)))

    async def write_in_thread(self, work: BlockingWork[T]) -> T:
        """`write` on SQLite with sqlite3 in a thread, before other writers that wait."""
        return await self._in_time(self._attempts(partial(self._locked_transaction, work)))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A read-only connection to one consistent state of the database, without a deadline.

        SQLite cannot truncate its WAL meanwhile.
        """
        options: dict[str, Any] = {}
        if not self._is_sqlite:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            async with self._engine.execution_options(**options).begin() as connection:
                if not self._is_sqlite:
                    # A slow disk may pause our reads; we hold no lock that others need.
                    await connection.execute(
                        sa.text("SET LOCAL idle_in_transaction_session_timeout = 0")
                    )
                yield connection
        except DRIVER_ERRORS as error:
            self._report(error)
            raise translate(error) from error

    async def check_writable(self) -> None:
        """Raise `StorageUnavailable` unless the database is writable; cheap to call often."""
        await self._write_check.check()

    def note_write(self) -> None:
        """Record a successful write, which makes a check unnecessary for a second."""
        self._write_check.written_at = self._write_check.now()

    async def close(self) -> None:
        """Wait for running work, then close all connections, without waiting for a hanging server."""
        # SQLite has no server that could hang, and a busy machine may take longer.
        seconds = None if self._is_sqlite else CLOSE_SECONDS
        if self._running:
            await asyncio.wait(self._running, timeout=seconds)
        disposal = asyncio.create_task(self._dispose())
        await asyncio.wait({disposal}, timeout=seconds)
        disposal.cancel()
        await asyncio.gather(disposal, return_exceptions=True)

    async def _dispose(self) -> None:
        await asyncio.gather(
            self._queries.close(), self._reading_thread.close(), self._writing_thread.close()
        )
        await self._driver.close()
        await self._engine.dispose()

    async def _bounded(self, work: Coroutine[Any, Any, T], seconds: float | None) -> T:
        if not self.options.is_patient:
            return await self._limited(work, seconds)
        try:
            await self._free_connections.acquire()
        except asyncio.CancelledError:
            work.close()
            raise
        try:
            return await self._limited(work, seconds)
        finally:
            self._free_connections.release()

    async def _limited(self, work: Coroutine[Any, Any, T], seconds: float | None) -> T:
        # The work gets its own task. Closing a connection to a hanging server takes seconds, which the
        # caller must not wait for. If the caller is cancelled, the work continues, because cancelling it
        # would cost a connection.
        seconds = seconds or self.options.timeout_seconds
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._forget)
        timer = asyncio.get_running_loop().call_later(seconds, task.cancel)
        task.add_done_callback(lambda _: timer.cancel())
        await asyncio.wait({task}, timeout=seconds)
        if not task.done() or task.cancelled():
            raise self._timed_out()
        return task.result()

    async def _in_time(self, work: Awaitable[T]) -> T:
        # No task is needed: the thread ends its transaction even if the caller is cancelled.
        try:
            async with asyncio.timeout(self.options.timeout_seconds):
                return await work
        except TimeoutError:
            raise self._timed_out() from None

    def _timed_out(self) -> StorageUnavailable:
        self._on_error("timeout")
        self._warn("the database is too slow", action="storage_timeout")
        return StorageUnavailable()

    def _report(self, error: BaseException) -> None:
        # The class only: driver messages quote statements and values.
        name = type(error).__name__
        self._warn("the database refused an operation", action="storage_error", error=name)

    def _warn(self, message: str, **details: str) -> None:
        if not self._is_quiet:
            log.warning(message, extra=details)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller may be gone

    async def _attempts(self, once: Callable[[], Awaitable[T]]) -> T:
        for retries_left in reversed(range(MAX_RETRIES + 1)):
            try:
                return await once()
            except DRIVER_ERRORS as error:
                if not (retries_left and is_transient(error)):
                    self._on_error("refused")
                    self._report(error)
                    raise translate(error) from error
            self._on_error("retried")
            await asyncio.sleep(random.uniform(0.002, 0.02))  # noqa: S311
        raise AssertionError("unreachable")

    async def _transaction(self, engine: AsyncEngine, work: Work[T]) -> T:
        is_exclusive = self._is_sqlite and engine is self._writer
        lock: AbstractAsyncContextManager[None] = (
            self._write_lock if is_exclusive else nullcontext()
        )
        async with lock, engine.begin() as connection:
            return await work(connection)

    async def _write_little(self) -> None:
        if self._is_sqlite:
            await self.write_in_thread(write_little_to_sqlite)
        else:
            await self.write_by_driver(write_little_to_postgres)

    async def _locked_transaction(self, work: BlockingWork[T]) -> T:
        # The lock is held until the thread is done, possibly after the caller's timeout.
        await self._write_lock.acquire(goes_first=True)
        return await self._writing_thread.transact(work, on_end=self._write_lock.release)


class Borrowed(NamedTuple):
    """A pooled connection and asyncpg's own connection in it."""

    connection: AsyncConnection
    driver: asyncpg.Connection

    async def discard(self) -> None:
        """Return it to the pool as unusable, which frees its place."""
        # Postgres rolls back the transaction of a lost connection. Asking for a rollback would wait for a
        # server that may be hanging.
        self.driver.terminate()
        await self.connection.invalidate()


class KeptDriver:
    """An asyncpg connection that is kept between appends.

    It comes from the pool. Borrowing and returning it for each batch would cost five greenlet switches. If
    it is in use, another one is borrowed.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._idle: Borrowed | None = None
        self._is_closed = False

    async def use(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """The result of `work`; if it fails, the connection is discarded."""
        borrowed = await self._taken()
        try:
            result = await work(borrowed.driver)
        except BaseException:
            await borrowed.discard()
            raise
        await self._keep(borrowed)
        return result

    async def close(self) -> None:
        """Return the kept connection, and keep none from now on."""
        self._is_closed = True
        if self._idle is not None:
            await self._idle.connection.close()

    async def _taken(self) -> Borrowed:
        borrowed, self._idle = self._idle, None
        if borrowed is not None and borrowed.driver.is_closed():  # by the server, while it was idle
            await borrowed.discard()
            borrowed = None
        return borrowed or await self._borrowed()

    async def _keep(self, borrowed: Borrowed) -> None:
        if self._idle is None and not self._is_closed:
            self._idle = borrowed
        else:
            await borrowed.connection.close()

    async def _borrowed(self) -> Borrowed:
        connection = await self._engine.connect()
        try:
            driver: Any = (await connection.get_raw_connection()).driver_connection
        except BaseException:
            await connection.close()
            raise
        return Borrowed(connection, driver)


async def _rows(query: Query, parameters: Parameters, connection: AsyncConnection) -> Sequence[Row]:
    return (await connection.execute(query, parameters)).all()
