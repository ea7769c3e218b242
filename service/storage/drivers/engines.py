"""The engine of a database: SQLite here, Postgres in a file of its own."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from service.storage.drivers.options import DatabaseOptions, milliseconds
from service.storage.drivers.postgres import create_postgres, parsed_url

DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
SQLITE_PRAGMAS = ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON")


def create_engine(url: str, options: DatabaseOptions) -> AsyncEngine:
    """An engine that connects when it is first used; ValueError for other databases."""
    parsed = _with_driver(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    return (_create_sqlite if is_sqlite else create_postgres)(parsed, options)


def _with_driver(url: str) -> sa.URL:
    parsed = parsed_url(url)
    name = parsed.get_backend_name()
    if name not in DRIVERS:
        raise ValueError(f"the database must be sqlite or postgresql, not {name}")
    return parsed.set(drivername=DRIVERS[name])


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
        f"busy_timeout={milliseconds(options.lock_timeout_seconds)}",
        *SQLITE_PRAGMAS,
    ):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
