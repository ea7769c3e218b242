"""The engine: connections, transactions, deadlines and retries, on SQLite or Postgres."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from service.errors import StorageUnavailable
from service.storage.driver_errors import DRIVER_ERRORS, is_transient, translate
from service.storage.kept_driver import KeptDriver

T = TypeVar("T")
Connection = AsyncConnection
Work = Callable[[AsyncConnection], Awaitable[T]]

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
MAX_RETRIES = 3
CLOSE_SECONDS = 3.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """Bounds on every use of the database.

    `timeout_seconds` is for one whole operation: waiting for a connection, connecting, the
    transaction and its retries. A session that sits idle inside a transaction (its process is
    stopped, or its network gone) is ended by Postgres, so that it cannot keep a lock.
    """

    pool_size: int = 8
    timeout_seconds: float = 1.0
    lock_timeout_seconds: float = 0.8
    idle_transaction_timeout_seconds: float = 5.0


def _ignore(kind: str) -> None:
    """Count nothing."""


class Database:
    """Runs pieces of work in transactions; raises only `ServiceError`s.

    Connections that break are replaced, so a database that was away is used again as soon as it
    is back. After a timeout or a lost connection the outcome of a commit is unknown: all writes
    can be sent again with the same ids. `on_error` is told the kind of every failure: timeout,
    refused, or retried.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        options: DatabaseOptions,
        on_error: Callable[[str], None] = _ignore,
    ) -> None:
        self.options = options
        self._on_error = on_error
        self._engine = engine
        self._is_sqlite = engine.dialect.name == "sqlite"
        # One statement needs no BEGIN and COMMIT of its own on Postgres.
        self._reader = engine if self._is_sqlite else _autocommitting(engine)
        self._writer = engine.execution_options(is_writer=True)
        self._driver = KeptDriver(engine)
        # SQLite has one writer at a time: waiting here is fair, its busy handler is not.
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[Any]] = set()

    @classmethod
    async def open(
        cls,
        url: str,
        options: DatabaseOptions | None = None,
        on_error: Callable[[str], None] = _ignore,
    ) -> "Database":
        """A database ready for use; connects when first used, so it may be down now."""
        options = options or DatabaseOptions()
        return cls(_create_engine(_with_driver(url), options), options, on_error)

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    async def read(self, work: Work[T], timeout_seconds: float | None = None) -> T:
        """The result of `work`, each of whose statements sees all that was committed before."""
        once = partial(self._transaction, self._reader, work)
        return await self._bounded(self._attempts(once), timeout_seconds)

    async def write(self, work: Work[T], timeout_seconds: float | None = None) -> T:
        """The result of `work` once its transaction is durable.

        `work` may run more than once: it must only touch the database. On SQLite it has the
        write lock from the start.
        """
        once = partial(self._transaction, self._writer, work)
        return await self._bounded(self._attempts(once), timeout_seconds)

    async def write_by_driver(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """The same of work that is one statement of Postgres, on the driver's own connection."""
        return await self._bounded(self._attempts(partial(self._driver.use, work)), None)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A connection that sees the database of one moment for as long as it takes; read only.

        Nobody waits for it, so it has no deadline. SQLite's log cannot be cleared meanwhile.
        """
        options: dict[str, Any] = {}
        if not self._is_sqlite:
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        try:
            async with self._engine.execution_options(**options).begin() as connection:
                if not self._is_sqlite:
                    # A slow disk may keep us from asking on; we hold no lock that others want.
                    await connection.execute(
                        sa.text("SET LOCAL idle_in_transaction_session_timeout = 0")
                    )
                yield connection
        except DRIVER_ERRORS as error:
            _report(error)
            raise translate(error) from error

    async def ping(self) -> None:
        """Raise `StorageUnavailable` unless the database answers in time."""
        await self.read(lambda connection: connection.execute(sa.select(1)))

    async def close(self) -> None:
        """Let what runs end, then close all connections; a server that hangs is not waited for."""
        if self._running:
            await asyncio.wait(self._running, timeout=CLOSE_SECONDS)
        disposal = asyncio.create_task(self._dispose())
        await asyncio.wait({disposal}, timeout=CLOSE_SECONDS)
        disposal.cancel()
        await asyncio.gather(disposal, return_exceptions=True)

    async def _dispose(self) -> None:
        await self._driver.close()
        await self._engine.dispose()

    async def _bounded(self, work: Coroutine[Any, Any, T], seconds: float | None) -> T:
        # The work gets a task of its own. Closing a connection whose server hangs takes seconds,
        # and the caller must not wait for that; a caller that is cancelled leaves the work to
        # end in order, for breaking it off would cost a connection.
        seconds = seconds or self.options.timeout_seconds
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._forget)
        timer = asyncio.get_running_loop().call_later(seconds, task.cancel)
        task.add_done_callback(lambda _: timer.cancel())
        await asyncio.wait({task}, timeout=seconds)
        if not task.done() or task.cancelled():
            self._on_error("timeout")
            log.warning("the database is too slow", extra={"action": "storage_timeout"})
            raise StorageUnavailable
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # mark as seen: the caller may be gone

    async def _attempts(self, once: Callable[[], Awaitable[T]]) -> T:
        for retries_left in reversed(range(MAX_RETRIES + 1)):
            try:
                return await once()
            except DRIVER_ERRORS as error:
                if not (retries_left and is_transient(error)):
                    self._on_error("refused")
                    _report(error)
                    raise translate(error) from error
            self._on_error("retried")
            await asyncio.sleep(random.uniform(0.002, 0.02))  # noqa: S311
        raise AssertionError("unreachable")

    async def _transaction(self, engine: AsyncEngine, work: Work[T]) -> T:
        is_exclusive = self._is_sqlite and engine is self._writer
        turn: AbstractAsyncContextManager[None] = self._turn if is_exclusive else nullcontext()
        async with turn, engine.begin() as connection:
            return await work(connection)


def _report(error: BaseException) -> None:
    # The class only: driver messages quote statements and values.
    log.warning(
        "the database refused",
        extra={"action": "storage_error", "error": type(error).__name__},
    )


def _with_driver(url: str) -> sa.URL:
    parsed = sa.make_url(url)
    name = parsed.get_backend_name()
    if name not in DRIVERS:
        raise ValueError(f"the database is sqlite or postgresql, not {name}")
    return parsed.set(drivername=DRIVERS[name])


def _autocommitting(engine: AsyncEngine) -> AsyncEngine:
    return engine.execution_options(isolation_level="AUTOCOMMIT")


def _create_engine(url: sa.URL, options: DatabaseOptions) -> AsyncEngine:
    make = _create_sqlite if url.get_backend_name() == "sqlite" else _create_postgres
    return make(url, options)


def _create_postgres(url: sa.URL, options: DatabaseOptions) -> AsyncEngine:
    settings = {
        "application_name": "daband",
        # A plan made for a short log and kept would read all of one that has grown meanwhile.
        "plan_cache_mode": "force_custom_plan",
        "lock_timeout": _milliseconds(options.lock_timeout_seconds),
        "idle_in_transaction_session_timeout": _milliseconds(
            options.idle_transaction_timeout_seconds
        ),
    }
    return create_async_engine(
        url,
        pool_size=options.pool_size,
        max_overflow=0,
        pool_timeout=options.timeout_seconds,
        pool_use_lifo=True,
        connect_args={"timeout": options.timeout_seconds, "server_settings": settings},
    )


def _create_sqlite(url: sa.URL, options: DatabaseOptions) -> AsyncEngine:
    if url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_async_engine(
        url,
        pool_size=options.pool_size,
        max_overflow=0,
        pool_timeout=options.timeout_seconds,
    )
    busy_timeout = _milliseconds(options.lock_timeout_seconds)

    @sa.event.listens_for(engine.sync_engine, "connect")
    def _prepare(connection: DBAPIConnection, _record: object) -> None:
        # The driver's own BEGIN comes too late, at the first write: we send it ourselves.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in (f"busy_timeout={busy_timeout}", *SQLITE_PRAGMAS):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @sa.event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        is_writer = connection.get_execution_options().get("is_writer", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine


SQLITE_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
