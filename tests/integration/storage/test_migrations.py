"""Migrations, on SQLite and on Postgres."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import sqlalchemy as sa

from service.storage.database import Database
from service.storage.drivers import migrate
from service.storage.experiments import Experiments
from tests.support.migrations import downgrade, drift
from tests.support.processes.service import ROOT, clean_environment
from tests.support.storage import (
    PATIENT,
    Backend,
    PooledDatabases,
    PostgresDatabases,
    migrated,
    sqlite_url,
)
from tests.support.waiting import eventually

WAITING = """
    SELECT count(*) FROM pg_stat_activity JOIN pg_locks USING (pid)
    WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted
    AND clock_timestamp() - query_start > interval '2 seconds'
"""


@pytest.fixture
async def empty_url(backend: Backend, tmp_path: Path) -> AsyncIterator[str]:
    if isinstance(backend, PostgresDatabases | PooledDatabases):
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
    assert await drift(empty) != []
    await migrate.upgrade(empty)
    assert await drift(empty) == []


async def test_upgrading_again_changes_nothing(empty: Database):
    await migrate.upgrade(empty)
    await Experiments(empty).create("doses", "{}")
    await migrate.upgrade(empty)
    assert len(await Experiments(empty).list()) == 1


async def test_going_back_to_nothing_and_forth_again_works(empty: Database):
    await migrate.upgrade(empty)
    await downgrade(empty, "base")
    assert await migrate.current(empty) is None
    await migrate.upgrade(empty)
    assert await drift(empty) == []


def declared(method: Any = "daband", **fields: Any) -> str:
    context = {"kind": "shared", "shape": [4]}
    spec = {"arms": ["a", "b"], "context": context, "method": method, "seed": 0, "config": {}}
    return json.dumps({**spec, **fields})


async def test_the_configuration_of_existing_experiments_is_resolved_once_by_recipe_1(
    empty: Database,
):
    specs = {
        "vectors": declared(),
        "images": declared("daband-plus", context={"kind": "shared", "shape": [3, 8, 8]}),
        "own": declared("linucb", config={"alpha": 2, "hidden_sizes": [4]}),
        "open-arms": declared(arms=[], context={"kind": "per_arm", "shape": [4]}),
        "odd-method": declared("magic"),
        "odd-field": declared(config={"old_trick": True}),
        "nothing": "{}",
    }
    await migrate.upgrade(empty, "0006")
    rows = [
        {"experiment_id": name, "name": name, "spec": spec, "phase": "zero_shot"}
        for name, spec in specs.items()
    ]
    insert = sa.text(
        "INSERT INTO experiments (experiment_id, name, spec, phase, status, created_at)"
        " VALUES (:experiment_id, :name, :spec, :phase, 'active', CURRENT_TIMESTAMP)"
    )
    await empty.write(lambda connection: connection.execute(insert, rows))
    await migrate.upgrade(empty)
    found = {each.name: each for each in await Experiments(empty).list()}
    configs = {name: json.loads(each.config or "null") for name, each in found.items()}
    assert {name for name, each in found.items() if each.recipe == 1} == {*list(specs)[:4]}
    assert [configs[name] for name in list(specs)[4:]] == [None, None, None]
    assert {len(configs[name]) for name in list(specs)[:4]} == {36}
    assert [configs[name]["alpha"] for name in ("vectors", "images", "own")] == [0.5, 0.5, 2]
    assert [configs[name]["encoder"] for name in ("vectors", "images", "own")] == [
        *("committee", "strided-conv", "identity")
    ]
    assert (configs["open-arms"]["arm_count"], configs["own"]["hidden_sizes"]) == (1, [4])
    await downgrade(empty, "0006")
    await migrate.upgrade(empty)
    assert await Experiments(empty).list() == list(found.values())


async def test_the_command_line_finds_its_configuration(empty_url: str):
    root = Path(migrate.__file__).parents[3]
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


async def test_the_schema_of_a_file_is_read_while_another_process_writes(tmp_path: Path):
    url = sqlite_url(tmp_path / "daband.db")
    await migrated(url)
    impatient = replace(PATIENT, lock_timeout_seconds=0.001)
    with closing(sqlite3.connect(tmp_path / "daband.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        async with Database.opened(url, impatient) as database:
            assert await migrate.is_current(database)


async def test_a_start_waits_for_a_migration_that_runs(postgres_databases: PostgresDatabases):
    async with (
        postgres_databases.fresh(is_migrated=False) as url,
        Database.opened(url, PATIENT) as database,
    ):
        assert not await migrate.is_current(database)
        async with migration_lock(url) as connection:
            start = asyncio.create_task(migrate.is_current(database))
            await eventually(lambda: does_one_wait(connection))
            await connection.execute("CREATE TABLE alembic_version (version_num text)")
            await connection.execute("INSERT INTO alembic_version VALUES ($1)", migrate.head())
        assert await start


async def does_one_wait(connection: asyncpg.Connection) -> bool:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    return bool(await connection.fetchval(waiting))


@pytest.mark.slow
async def test_processes_that_migrate_at_once_wait_for_each_other(
    postgres_databases: PostgresDatabases,
):
    async with postgres_databases.fresh(is_migrated=False) as url:
        async with migration_lock(url), two_migrations(url) as processes:
            await eventually(partial(do_both_wait, url, processes))
        payload = sorted([(await each.communicate())[0].splitlines()[-1] for each in processes])
        assert [each.returncode for each in processes] == [0, 0]
    head = migrate.head()
    expected = [f"schema {head}, nothing to do", f"schema None → {head}"]
    assert [line.decode() for line in payload] == expected


@asynccontextmanager
async def migration_lock(url: str) -> AsyncIterator[asyncpg.Connection]:
    """Another process migrates meanwhile."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", migrate.MIGRATION_LOCK)
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def two_migrations(url: str) -> AsyncIterator[list[asyncio.subprocess.Process]]:
    """`daband migrate`, twice; killed when a test fails."""
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "service.cli", "migrate"),
            cwd=ROOT,
            env=clean_environment({"DABAND_DATABASE_URL": url}),
            stdout=asyncio.subprocess.PIPE,
        )
        for _ in range(2)
    ]
    try:
        yield processes
    except BaseException:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.communicate()
        raise


async def do_both_wait(url: str, processes: list[asyncio.subprocess.Process]) -> bool:
    """Whether both have waited for longer than the service does for any other lock."""
    assert [each.returncode for each in processes] == [None, None]
    connection = await asyncpg.connect(url)
    try:
        return int(await connection.fetchval(WAITING)) == 2
    finally:
        await connection.close()
