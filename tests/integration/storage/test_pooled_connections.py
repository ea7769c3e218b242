"""Postgres through a real PgBouncer in transaction pooling, as it comes."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from service.storage.database import Database
from service.storage.drivers import migrate
from service.storage.events.postgres import transaction
from service.storage.experiments import Experiments
from tests.support.api import DOSES, running_api
from tests.support.machines.pgbouncer import PgBouncer
from tests.support.migrations import drift
from tests.support.processes.servers import running_server
from tests.support.storage import PATIENT, PostgresDatabases, decision, opened_log

CALLERS = 300
# What an administrator writes so that programs with settings of a session can connect at all.
IGNORED = "plan_cache_mode, lock_timeout, idle_in_transaction_session_timeout"
LIMITED = replace(PATIENT, lock_timeout_seconds=7, idle_transaction_timeout_seconds=3)
SHOWN = ("SHOW lock_timeout", "SHOW idle_in_transaction_session_timeout")


@pytest.fixture(scope="module")
def pooler(postgres_admin_url: str) -> Iterator[PgBouncer]:
    with running_server(PgBouncer(postgres_admin_url)) as started:
        yield started


async def test_concurrent_selects_and_rewards_all_succeed(pooler: PgBouncer, postgres_url: str):
    async with running_api(pooler.before(postgres_url)) as api:
        assert (await api.http.post("/experiments", json=DOSES)).status_code == 201
        selects = [api.select(f"r-{number}") for number in range(CALLERS)]
        decided = await asyncio.gather(*selects)
        assert Counter(each.status_code for each in decided) == {200: CALLERS}
        ids = [each.json()["source"]["decision_id"] for each in decided]
        rewarded = await asyncio.gather(*map(api.reward, ids))
        assert Counter(each.status_code for each in rewarded) == {201: CALLERS}
        assert await api.last_offset() == 2 * CALLERS


async def test_limits_hold_for_a_transaction(pooler: PgBouncer, postgres_url: str):
    database = await Database.open(pooler.before(postgres_url), LIMITED)

    async def of_a_write(connection: AsyncConnection) -> list[str]:
        return [(await connection.exec_driver_sql(each)).scalar_one() for each in SHOWN]

    async def of_an_append(driver: asyncpg.Connection) -> list[str]:
        async with transaction(driver, LIMITED):
            return [await driver.fetchval(each) for each in SHOWN]

    assert await database.write(of_a_write) == ["7s", "3s"]
    assert await database.write_by_driver(of_an_append) == ["7s", "3s"]
    await database.close()


@pytest.mark.parametrize("settings", [{}, {"ignore_startup_parameters": IGNORED}])
async def test_a_session_keeps_nothing_of_a_transaction(
    postgres_url: str, settings: dict[str, str]
):
    with running_server(PgBouncer(postgres_url, default_pool_size="1", **settings)) as pooler:
        async with opened_log(pooler.url, LIMITED) as log:
            database = await Database.open(pooler.url, LIMITED)
            experiment = await Experiments(database).create("doses", "{}")
            for _ in range(2):  # new, then found
                await log.append([decision(experiment, request_id="r-1")])
            await database.check_writable()
            assert len(await log.read(experiment.experiment_id, 0, 10)) == 1
            await database.close()
        connection = await asyncpg.connect(pooler.url, statement_cache_size=0)
        assert [await connection.fetchval(each) for each in SHOWN] == ["0", "0"]
        kept = await connection.fetchval(
            "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''"
        )
        await connection.close()
    assert kept == 0


async def test_migrations_run_through_a_pooler(
    pooler: PgBouncer, postgres_databases: PostgresDatabases
):
    async with postgres_databases.fresh(is_migrated=False) as url:
        database = await Database.open(pooler.before(url), PATIENT)
        assert await migrate.upgrade(database) == (None, migrate.head())
        assert await drift(database) == []
        await database.close()
