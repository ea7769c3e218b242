"""Runs Alembic's migrations on an open database."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.storage.database import Database

T = TypeVar("T")

# Next to the packages, both in the repository and in an installed wheel.
MIGRATIONS = Path(__file__).parents[3] / "migrations"
TIMEOUT_SECONDS = 300.0
UNCHECKED_BY_POSTGRES = "fk_events_experiment_id"  # see migration 0005
MIGRATION_LOCK = 0x6461_6261_6E64  # the key of the advisory lock for migrations


def config(connection: sa.Connection | None = None) -> Config:
    """Alembic's configuration; `migrations/env.py` uses the connection."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


@cache
def scripts() -> ScriptDirectory:
    """The migrations, read once: Alembic compiles every file of theirs."""
    return ScriptDirectory.from_config(config())


def head() -> str:
    """The revision that this code needs."""
    revision = scripts().get_current_head()
    assert revision is not None  # noqa: S101 - there are migrations
    return revision


def lock_migrations(connection: sa.Connection) -> None:
    """Wait until no other process migrates; the lock is held until the transaction ends.

    The wait for other migrations has no timeout. The wait for tables in use has one, because other
    transactions would queue behind it. SQLite has one writer at a time anyway.
    """
    if connection.dialect.name == "postgresql":
        timeout = connection.exec_driver_sql("SHOW lock_timeout").scalar_one()
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{timeout}'")


class NewerSchemaError(Exception):
    """A later version of daband wrote this database: run that version, or restore a backup of this one."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{type(self).__doc__} Its schema is {found}, this version's is {head()}.")


async def upgrade(database: Database, revision: str = "head") -> tuple[str | None, str | None]:
    """Upgrade the schema in one transaction; returns the revisions before and after."""

    def work(connection: sa.Connection) -> tuple[str | None, str | None]:
        lock_migrations(connection)
        before = known_revision(connection)
        command.upgrade(config(connection), revision)
        return before, revision_of(connection)

    return await _run(database, work)


async def current(database: Database) -> str | None:
    """The revision of the database; None if it is empty."""
    return await database.read(lambda connection: connection.run_sync(revision_of))


async def is_current(database: Database) -> bool:
    """Whether the database has the revision that this code needs; raises `NewerSchemaError`.

    If another process migrates now, this waits for it.
    """

    def after_migrations(connection: sa.Connection) -> str | None:
        lock_migrations(connection)
        return known_revision(connection)

    found = await database.read(lambda connection: connection.run_sync(known_revision))
    return found == head() or await _run(database, after_migrations) == head()


def known_revision(connection: sa.Connection) -> str | None:
    """The revision of the database; raises `NewerSchemaError` if this code does not know it."""
    found = revision_of(connection)
    known = {script.revision for script in scripts().walk_revisions()}
    if found is not None and found not in known:
        raise NewerSchemaError(found)
    return found


def comparing(connection: sa.Connection) -> dict[str, Any]:
    """Alembic's options for comparing a schema with `tables`."""
    is_postgres = connection.dialect.name == "postgresql"

    def is_compared(_: object, name: str | None, *__: object) -> bool:
        return not (is_postgres and name == UNCHECKED_BY_POSTGRES)

    return {
        "compare_type": True,
        "compare_server_default": True,
        "include_object": is_compared,
    }


def revision_of(connection: sa.Connection) -> str | None:
    """The revision of the database; None if it is empty."""
    return MigrationContext.configure(connection).get_current_revision()


async def _run(database: Database, work: Callable[[sa.Connection], T]) -> T:
    return await database.write(
        lambda connection: connection.run_sync(work), timeout_seconds=TIMEOUT_SECONDS
    )
