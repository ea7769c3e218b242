"""A migration only adds what the build before can do without: both serve one database meanwhile."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.storage.database import Database
from service.storage.drivers import migrate
from tests.support.migrations import downgrade
from tests.support.storage import PATIENT, sqlite_url

# Of a column: its type, and whether an insert must name it.
Columns = dict[tuple[str, str], tuple[str, bool]]
BREAKING = {
    "a column is gone": "ALTER TABLE experiments DROP COLUMN recipe",
    "a column has another name": "ALTER TABLE experiments RENAME COLUMN recipe TO formula",
    "a table is gone": "DROP TABLE evaluations",
    "an insert must name a new column": "ALTER TABLE lately ADD COLUMN owner TEXT NOT NULL",
}


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    opened = await Database.open(sqlite_url(tmp_path / "daband.db"), PATIENT)
    yield opened
    await opened.close()


def columns(connection: sa.Connection) -> Columns:
    inspector = sa.inspect(connection)
    return {
        (table, column["name"]): (
            str(column["type"]),
            not column["nullable"] and column["default"] is None and not column.get("primary_key"),
        )
        for table in inspector.get_table_names()
        for column in inspector.get_columns(table)
    }


async def found(database: Database) -> Columns:
    return await database.read(lambda connection: connection.run_sync(columns))


def broken(before: Columns, after: Columns) -> list[tuple[str, str]]:
    """What the build before could not write or read any more."""
    tables = {table for table, _ in before}
    changed = [name for name, facts in before.items() if after.get(name) != facts]
    demanded = [
        name
        for name, (_, is_needed) in after.items()
        if is_needed and name not in before and name[0] in tables
    ]
    return changed + demanded


async def test_the_newest_migration_leaves_what_the_build_before_uses(database: Database):
    head = migrate.scripts().get_revision(migrate.head())
    assert isinstance(head.down_revision, str)
    await migrate.upgrade(database, head.down_revision)
    before = await found(database)
    await migrate.upgrade(database)
    assert broken(before, await found(database)) == []
    await downgrade(database, head.down_revision)
    assert await found(database) == before


@pytest.mark.parametrize("statement", BREAKING.values(), ids=BREAKING)
async def test_a_migration_that_breaks_it_would_be_found(database: Database, statement: str):
    await migrate.upgrade(database)
    await database.write(
        lambda connection: connection.exec_driver_sql("CREATE TABLE lately (id INTEGER)")
    )
    before = await found(database)
    await database.write(lambda connection: connection.exec_driver_sql(statement))
    assert broken(before, await found(database)) != []
