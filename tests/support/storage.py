"""Small makers and waiters for the storage tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import sqlalchemy as sa
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncConnection

from service.records import Domain, EventKind, Experiment, NewEvent, StoredEvent, uuid7
from service.storage.archive.archive import Archive
from service.storage.database import Database, DatabaseOptions
from service.storage.drivers import migrate
from service.storage.events.group_commit import CommitOptions
from service.storage.events.log import EventLog
from service.storage.events.rows import event_columns, fetch_events
from service.storage.tables import events, snapshots
from tests.support.machines.pgbouncer import PgBouncer
from tests.support.waiting import PATIENCE_SECONDS

PATIENT = DatabaseOptions(
    timeout_seconds=PATIENCE_SECONDS,
    lock_timeout_seconds=PATIENCE_SECONDS / 2,
    idle_transaction_timeout_seconds=PATIENCE_SECONDS,
)
PATIENT_COMMIT = CommitOptions(timeout_seconds=PATIENCE_SECONDS)


def decision(
    experiment: Experiment,
    *,
    domain: Domain = Domain.SOURCE,
    request_id: str | None = None,
    request_hash: str | None = "hash",
    context: bytes = b"context",
) -> NewEvent:
    return NewEvent(
        experiment.experiment_id,
        EventKind.DECISION,
        uuid7(),
        payload=b"payload",
        context=context,
        request_id=request_id,
        request_hash=request_hash,
        domain=domain,
        arm="low",
        policy_version=3,
    )


def reward(experiment: Experiment, decision_id: str, value: float = 1.0) -> NewEvent:
    return NewEvent(experiment.experiment_id, EventKind.REWARD, decision_id, reward=value)


async def find_request(log: EventLog, experiment_id: str, request_id: str) -> list[StoredEvent]:
    """The events that a request wrote, in order, of the table and of the archive."""
    query = sa.select(*event_columns(with_context=False)).where(
        events.c.experiment_id == experiment_id, events.c.request_id == request_id
    )
    found = await fetch_events(log._database, query)
    # Of an archived round that is being deleted, the table may have one side only.
    archived = await Archive(log._database).requests(experiment_id, [request_id])
    both = {each.offset: replace(each, context=None) for each in [*archived, *found]}
    return [both[offset] for offset in sorted(both)]


async def append_decision(log: EventLog, experiment: Experiment, **fields: Any) -> str:
    """Append one decision; its id."""
    (appended,) = await log.append([decision(experiment, **fields)])
    return appended.event.event_key


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run background tasks meanwhile."""
    tasks = [asyncio.create_task(each) for each in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@asynccontextmanager
async def opened_log(
    url: str,
    options: DatabaseOptions = PATIENT,
    commit_options: CommitOptions = PATIENT_COMMIT,
) -> AsyncIterator[EventLog]:
    """An event log on a database of its own, as another process would have it."""
    async with Database.opened(url, options) as database:
        log = EventLog(database, commit_options)
        async with running(log.run()):
            yield log
            await log.close()


async def outcome(work: Awaitable[Any]) -> Any:
    """The result, or the exception instead of raising it."""
    return (await asyncio.gather(work, return_exceptions=True))[0]


async def migrated(url: str) -> None:
    """Bring a database to the newest schema."""
    async with Database.opened(url, PATIENT) as database:
        await migrate.upgrade(database)


# Whoever is still connected is gone, and so is every row but what the migrations wrote.
EMPTYING = """
DO $$ DECLARE name text; found boolean; used text[] := '{}';
BEGIN
  PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid();
  FOR name IN SELECT quote_ident(tablename) FROM pg_tables
    WHERE schemaname = 'public' AND tablename NOT IN ('alembic_version', 'snapshot_keys')
  LOOP
    EXECUTE 'SELECT EXISTS (SELECT FROM ' || name || ')' INTO found;
    IF found THEN used := used || name; END IF;
  END LOOP;
  IF used <> '{}' THEN
    EXECUTE 'TRUNCATE ' || array_to_string(used, ', ') || ' RESTART IDENTITY CASCADE';
  END IF;
END $$
"""


class PostgresDatabases:
    """Databases of a Postgres server: migrated ones are cloned from a template."""

    def __init__(self, admin_url: str) -> None:
        self._admin_url = admin_url
        self._template = f"template_{uuid7().replace('-', '')}"
        self._empty: list[str] = []

    def url(self, name: str) -> str:
        parts = urlsplit(self._admin_url)
        return urlunsplit(parts._replace(path=f"/{name}"))

    async def make_template(self) -> None:
        await self._execute(f'CREATE DATABASE "{self._template}"')
        await migrated(self.url(self._template))

    async def drop_all(self) -> None:
        """The template, and what was lent."""
        for name in (self._template, *self._empty):
            await self._drop(name)

    @asynccontextmanager
    async def fresh(self, *, is_migrated: bool = True) -> AsyncIterator[str]:
        """The URL of a new database that is dropped in the end."""
        name = await self._created(self._template if is_migrated else "template1")
        yield self.url(name)
        await self._drop(name)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[str]:
        """The URL of a migrated, empty database; it is emptied for the next one, which is cheaper.

        What changes the schema, or depends on the planner's statistics, takes a fresh one.
        """
        name = self._empty.pop() if self._empty else await self._created(self._template)
        yield self.url(name)
        await self._execute(EMPTYING, name)
        self._empty.append(name)

    async def _created(self, template: str) -> str:
        name = f"test_{uuid7().replace('-', '')}"
        await self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return name

    async def _drop(self, name: str) -> None:
        await self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    async def _execute(self, statement: str, database: str | None = None) -> None:
        connection = await asyncpg.connect(self.url(database) if database else self._admin_url)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()


async def flip_a_bit(
    database: Database, experiment_id: str, number: int, table: sa.Table = snapshots
) -> None:
    """Damage a stored snapshot or candidate behind the service's back; twice, and it is whole."""
    numbers = table.c.version if table is snapshots else table.c.episode
    row = (table.c.experiment_id == experiment_id) & (numbers == number)

    async def flip(connection: AsyncConnection) -> None:
        blob: bytes = (await connection.execute(sa.select(table.c.blob).where(row))).scalar_one()
        changed = blob[:-1] + bytes([blob[-1] ^ 1])
        await connection.execute(sa.update(table).where(row).values(blob=changed))

    await database.write(flip)


class PooledDatabases:
    """The same databases through a connection pooler."""

    def __init__(self, databases: PostgresDatabases, pooler: PgBouncer) -> None:
        self._databases = databases
        self._pooler = pooler

    @asynccontextmanager
    async def fresh(self, *, is_migrated: bool = True) -> AsyncIterator[str]:
        async with self._databases.fresh(is_migrated=is_migrated) as url:
            yield self._pooler.before(url)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[str]:
        async with self._databases.lent() as url:
            yield self._pooler.before(url)


# Where a test's databases come from: a file to copy, or a server to clone them on.
Backend = Path | PostgresDatabases | PooledDatabases


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"
