"""Migrations, on SQLite and on Postgres."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.storage import migrate
from service.storage.database import Database
from service.storage.experiments import Experiments
from tests.storage_tools import PATIENT, Backend, PostgresDatabases, sqlite_url


@pytest.fixture
async def empty_url(backend: Backend, tmp_path: Path) -> AsyncIterator[str]:
    if isinstance(backend, PostgresDatabases):
        async with backend.fresh(is_migrated=False) as url:
            yield url
    else:
        yield sqlite_url(tmp_path / "new-folder" / "service.db")


@pytest.fixture
async def empty(empty_url: str) -> AsyncIterator[Database]:
    database = await Database.open(empty_url, PATIENT)
    yield database
    await database.close()


async def test_an_empty_database_is_brought_up_to_date(empty: Database):
    assert await migrate.current(empty) is None
    assert not await migrate.is_current(empty)
    await migrate.upgrade(empty)
    assert await migrate.current(empty) == migrate.head()
    await Experiments(empty).create("doses", "{}")


async def test_migrations_and_tables_say_the_same(empty: Database):
    assert await migrate.drift(empty) != []
    await migrate.upgrade(empty)
    assert await migrate.drift(empty) == []


async def test_upgrading_again_changes_nothing(empty: Database):
    await migrate.upgrade(empty)
    await Experiments(empty).create("doses", "{}")
    await migrate.upgrade(empty)
    assert len(await Experiments(empty).list()) == 1


async def test_going_back_to_nothing_and_forth_again_works(empty: Database):
    await migrate.upgrade(empty)
    await migrate.downgrade(empty, "base")
    assert await migrate.current(empty) is None
    await migrate.upgrade(empty)
    assert await migrate.drift(empty) == []


async def test_the_command_line_finds_its_configuration(empty_url: str):
    root = Path(migrate.__file__).parents[2]
    environment = {**os.environ, "DABAND_DATABASE_URL": empty_url}
    for arguments in (["upgrade", "head"], ["check"]):
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "alembic", *arguments],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
