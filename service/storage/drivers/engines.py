"""Engines for SQLite and Postgres."""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
SQLITE_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """Limits on every use of the database.

    `timeout_seconds` covers one whole operation: waiting for a connection, connecting, the transaction and
    its retries. Postgres ends a session that is idle inside a transaction, for example of a stopped
    process, so that it cannot keep a lock.

    With `is_patient` the time starts when a connection is free. That is for trainers: hundreds of
    experiments may need one at once, and no request waits for them.
    """

    pool_size: int = 8
    timeout_seconds: float = 1.0
    lock_timeout_seconds: float = 0.8
    idle_transaction_timeout_seconds: float = 5.0
    is_patient: bool = False


def create_engine(url: str, options: DatabaseOptions) -> AsyncEngine:
    """An engine that connects when it is first used; ValueError for other databases."""
    parsed = _with_driver(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    return (_create_sqlite if is_sqlite else _create_postgres)(parsed, options)


def _with_driver(url: str) -> sa.URL:
    parsed = sa.make_url(url)
    name = parsed.get_backend_name()
    if name not in DRIVERS:
        raise ValueError(f"the database must be sqlite or postgresql, not {name}")
    return parsed.set(drivername=DRIVERS[name])


def _create_postgres(url: sa.URL, options: DatabaseOptions) -> AsyncEngine:
    settings = {
        "application_name": "daband",
        # A cached plan for a short log would scan a log that has grown.
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

    @sa.event.listens_for(engine.sync_engine, "connect")
    def _connected(connection: DBAPIConnection, _record: object) -> None:
        _prepare_sqlite(connection, options)

    @sa.event.listens_for(engine.sync_engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        is_writer = connection.get_execution_options().get("is_writer", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writer else "BEGIN")

    return engine


def connect_sqlite(engine: AsyncEngine, options: DatabaseOptions) -> sqlite3.Connection:
    """A sqlite3 connection with the engine's settings."""
    arguments, named = engine.dialect.create_connect_args(engine.url)
    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    connection = connect(*arguments, **named)
    _prepare_sqlite(connection, options)
    return connection


def _prepare_sqlite(
    connection: DBAPIConnection | sqlite3.Connection, options: DatabaseOptions
) -> None:
    # The driver would send BEGIN only at the first write, so we send it ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in (
        f"busy_timeout={_milliseconds(options.lock_timeout_seconds)}",
        *SQLITE_PRAGMAS,
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
