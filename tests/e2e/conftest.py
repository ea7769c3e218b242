"""Real servers for the service processes: shared ones, and ones that a test may hurt."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
import torch

from tests.e2e.processes import Daband
from tests.servers import PostgresServer, RedisServer
from tests.storage_tools import PostgresDatabases, migrated

Process = TypeVar("Process", bound=Daband)
Adopt = Callable[[Process], Process]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """As the service processes have it: folds are compared byte for byte."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A Postgres that no test hurts."""
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A Redis that no test hurts."""
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session")
def databases(postgres: PostgresServer) -> PostgresDatabases:
    made = PostgresDatabases(postgres.url())
    asyncio.run(made.make_template())
    return made


@pytest.fixture
async def postgres_url(databases: PostgresDatabases) -> AsyncIterator[str]:
    """A database of its own, migrated and empty."""
    async with databases.fresh() as url:
        yield url


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """A Postgres to hurt, migrated."""
    server = PostgresServer()
    server.start()
    asyncio.run(migrated(server.url()))
    yield server
    server.remove()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis to hurt."""
    server = RedisServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture
def adopt() -> Iterator[Adopt[Daband]]:
    """Kills in the end what a test has started."""
    adopted: list[Daband] = []

    def keep(process: Daband) -> Daband:
        adopted.append(process)
        return process

    yield keep
    for process in adopted:
        process.remove()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where a test's processes keep their data and output."""
    return tmp_path
