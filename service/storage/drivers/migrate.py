"""Migrations from code: what `alembic` does, on a database that is already open."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.storage.database import Database
from service.storage.tables import metadata

T = TypeVar("T")

# Beside the packages, in the repository as in an installed wheel.
MIGRATIONS = Path(__file__).parents[3] / "migrations"
TIMEOUT_SECONDS = 300.0
UNCHECKED_BY_POSTGRES = "fk_events_experiment_id"  # migration 0005 says why
TURN = 0x6461_6261_6E64  # of who migrates a Postgres; advisory locks are numbers


def config(connection: sa.Connection | None = None) -> Config:
    """Alembic's configuration; `migrations/env.py` uses the connection."""
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def head() -> str:
    """The revision that this code needs."""
    revision = ScriptDirectory.from_config(config()).get_current_head()
    assert revision is not None, "there is no migration"  # noqa: S101
    return revision


def take_turn(connection: sa.Connection) -> None:
    """Wait until no other process migrates; the turn ends with the transaction.

    Others that migrate are waited for as long as it takes. A table that is in use is not, for its
    users would queue behind us. SQLite has one writer at a time anyway.
    """
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({TURN})")
        connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")


class NewerSchemaError(Exception):
    """A later version of daband wrote this database: run that version, or restore a backup of this one."""

    def __init__(self, found: str) -> None:
        super().__init__(f"{type(self).__doc__} Its schema is {found}, this version's is {head()}.")


async def upgrade(database: Database, revision: str = "head") -> tuple[str | None, str | None]:
    """Bring the schema up to a revision, in one transaction; the revisions before and after."""

    def work(connection: sa.Connection) -> tuple[str | None, str | None]:
        take_turn(connection)
        before = known_revision(connection)
        command.upgrade(config(connection), revision)
        return before, revision_of(connection)

    return await _run(database, work)


async def downgrade(database: Database, revision: str) -> None:
    """Take the schema back to an earlier revision, in one transaction."""
    await _run(database, lambda connection: command.downgrade(config(connection), revision))


async def current(database: Database) -> str | None:
    """The revision of the database, none when it is empty."""
    return await _run(database, revision_of)


async def is_current(database: Database) -> bool:
    """Whether the database has the revision that this code needs; `NewerSchemaError` if a later one."""
    return await _run(database, known_revision) == head()


def known_revision(connection: sa.Connection) -> str | None:
    """The revision of the database, which must be one that this code knows."""
    found = revision_of(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()}
    if found is not None and found not in known:
        raise NewerSchemaError(found)
    return found


def comparing(connection: sa.Connection) -> dict[str, Any]:
    """What counts when a schema is compared with `tables`, as options of Alembic."""
    is_postgres = connection.dialect.name == "postgresql"

    def is_compared(_: object, name: str | None, *__: object) -> bool:
        return not (is_postgres and name == UNCHECKED_BY_POSTGRES)

    return {
        "compare_type": True,
        "compare_server_default": True,
        "include_object": is_compared,
    }


async def drift(database: Database) -> list[str]:
    """How the database's schema differs from `tables`; empty when it does not."""

    def compare(connection: sa.Connection) -> list[str]:
        context = MigrationContext.configure(connection, opts=comparing(connection))
        return [str(difference) for difference in compare_metadata(context, metadata)]

    return await _run(database, compare)


def revision_of(connection: sa.Connection) -> str | None:
    """The revision of the database, none when it is empty."""
    return MigrationContext.configure(connection).get_current_revision()


async def _run(database: Database, work: Callable[[sa.Connection], T]) -> T:
    return await database.write(
        lambda connection: connection.run_sync(work), timeout_seconds=TIMEOUT_SECONDS
    )
