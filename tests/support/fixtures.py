"""Real stores, for all tests that need them: shared ones, and ones that a test may hurt."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis

from service.bus.bus import RedisOptions
from tests.support.processes.servers import PostgresServer, RedisServer, running_server
from tests.support.storage import PostgresDatabases, migrated, sqlite_url


@pytest.fixture(scope="module")
def keeps_logging() -> Iterator[None]:
    """The command line sets up logging for its process; in a test's process it must not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.ops.logs.configure", lambda *_: None)
        yield


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty file to copy: migrating costs more than most tests do."""
    path = tmp_path_factory.mktemp("template") / "template.db"
    asyncio.run(migrated(sqlite_url(path)))
    return path


@pytest.fixture
def url(sqlite_template: Path, tmp_path: Path) -> str:
    """A SQLite database of its own, migrated and empty."""
    path = tmp_path / "daband.db"
    shutil.copy(sqlite_template, path)
    return sqlite_url(path)


@pytest.fixture(scope="session")
def postgres_admin_url() -> Iterator[str]:
    """A Postgres that no test hurts."""
    given = os.environ.get("DABAND_TEST_DATABASE_URL")
    if given:
        yield given
        return
    with running_server(PostgresServer()) as server:
        yield server.url()


@pytest.fixture(scope="session")
def postgres_databases(postgres_admin_url: str) -> Iterator[PostgresDatabases]:
    databases = PostgresDatabases(postgres_admin_url)
    asyncio.run(databases.make_template())
    yield databases
    asyncio.run(databases.drop_all())


@pytest.fixture
async def postgres_url(postgres_databases: PostgresDatabases) -> AsyncIterator[str]:
    """A database of its own, migrated and empty."""
    async with postgres_databases.fresh() as url:
        yield url


@pytest.fixture(scope="session")
def shared_redis_url() -> Iterator[str]:
    given = os.environ.get("DABAND_TEST_REDIS_URL")
    if given:
        yield given
        return
    with running_server(RedisServer()) as server:
        yield server.url


def emptied(redis_url: str) -> str:
    """The Redis, without what a service has left there."""
    with Redis.from_url(redis_url) as client:
        for key in client.scan_iter(f"{RedisOptions().prefix}:*"):
            client.delete(key)
    return redis_url


@pytest.fixture
def redis_url(shared_redis_url: str) -> str:
    """A Redis that no test hurts; what an earlier test's service left there is gone."""
    return emptied(shared_redis_url)


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A Postgres to hurt, migrated."""
    with running_server(PostgresServer()) as server:
        asyncio.run(migrated(server.url()))
        yield server


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis to hurt."""
    with running_server(RedisServer()) as server:
        yield server
