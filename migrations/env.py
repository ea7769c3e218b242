"""Runs the migrations, on the connection of `service.storage.drivers.migrate` or from the command line.

From the command line the database comes from `-x url=…` or from DABAND_DATABASE_URL.
"""

import asyncio
import os

from alembic import context
from sqlalchemy import Connection

from service.storage.database import Database
from service.storage.drivers.migrate import comparing, lock_migrations
from service.storage.tables import metadata


def run(connection: Connection) -> None:
    """Migrate on this connection, inside its transaction, one process at a time."""
    lock_migrations(connection)
    context.configure(
        connection=connection,
        target_metadata=metadata,
        **comparing(connection),
        render_as_batch=connection.dialect.name == "sqlite",
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()


async def run_from_command_line() -> None:
    """Open the database that the caller named and migrate it."""
    url = context.get_x_argument(as_dictionary=True).get("url") or os.environ["DABAND_DATABASE_URL"]
    database = await Database.open(url)
    try:
        await database.write(lambda connection: connection.run_sync(run), timeout_seconds=300)
    finally:
        await database.close()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    asyncio.run(run_from_command_line())
