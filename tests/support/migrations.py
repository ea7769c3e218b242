"""What only tests do with a schema: going back, and comparing it with the tables."""

import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from service.storage.database import Database
from service.storage.drivers import migrate
from service.storage.tables import metadata


async def downgrade(database: Database, revision: str) -> None:
    """Downgrade the schema in one transaction."""

    def work(connection: sa.Connection) -> None:
        command.downgrade(migrate.config(connection), revision)

    await database.write(lambda each: each.run_sync(work), migrate.TIMEOUT_SECONDS)


async def drift(database: Database) -> list[str]:
    """The differences between the database's schema and `tables`."""

    def compare(connection: sa.Connection) -> list[str]:
        context = MigrationContext.configure(connection, opts=migrate.comparing(connection))
        return [str(difference) for difference in compare_metadata(context, metadata)]

    return await database.write(lambda each: each.run_sync(compare), migrate.TIMEOUT_SECONDS)
