"""A database that several servers may hold: the one that takes writes is found, and found again."""

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StorageUnavailable
from service.storage.database import Database, DatabaseOptions
from service.storage.drivers.postgres import parsed_url
from tests.support.processes.faulty_proxy import FaultyProxy
from tests.support.processes.servers import free_port
from tests.support.waiting import PATIENCE_SECONDS

ONE = DatabaseOptions(pool_size=1, timeout_seconds=PATIENCE_SECONDS)
HOST = "127.0.0.1"


def beside(url: str, port: int) -> str:
    """The URL with another host before its own."""
    return url.replace("@", f"@{HOST}:{port},")


@pytest.mark.parametrize(
    ("url", "hosts", "port"),
    [
        ("postgresql://u:p%40@h1:5433,h2:5434/db", ["h1", "h2"], [5433, 5434]),
        ("postgresql://u@h1,h2:1/db?target_session_attrs=primary", ["h1", "h2"], [5432, 1]),
        ("postgresql://u@h1,[::1]:5434,[::2]/db", ["h1", "::1", "::2"], [5432, 5434, 5432]),
        ("postgresql://u@h1:5433/db", "h1", 5433),
        ("postgresql://u@[::1]:5433/db", "::1", 5433),
    ],
)
def test_hosts_are_given_as_libpq_has_them(url: str, hosts: object, port: object):
    parsed = parsed_url(url).set(drivername="postgresql+asyncpg")
    _, arguments = parsed.get_dialect()().create_connect_args(parsed)
    assert (arguments["host"], arguments["port"]) == (hosts, port)
    assert arguments["database"] == "db"
    assert ("target_session_attrs" in arguments) == ("attrs" in url)
    assert arguments.get("password") == ("p@" if ":p" in url else None)


async def process_id(connection: AsyncConnection) -> int:
    return int((await connection.exec_driver_sql("SELECT pg_backend_pid()")).scalar_one())


async def test_a_host_that_refuses_is_passed_by(postgres_url: str):
    database = await Database.open(beside(postgres_url, free_port()), ONE)
    assert await database.write(process_id)
    await database.close()


@pytest.mark.slow
async def test_a_host_that_does_not_answer_leaves_time_for_the_next(postgres_url: str):
    async with FaultyProxy(0, is_black_hole=True).running() as gone:
        options = DatabaseOptions(timeout_seconds=4)
        database = await Database.open(beside(postgres_url, gone.port), options)
        assert await database.write(process_id)
        await database.close()


@pytest.mark.parametrize("by_driver", [False, True])
async def test_a_server_that_became_read_only_is_left(postgres_url: str, by_driver: bool):
    database = await Database.open(postgres_url, ONE)

    async def demoted(connection: AsyncConnection) -> int:
        await connection.exec_driver_sql("SET default_transaction_read_only = on")
        return await process_id(connection)

    async def write(connection: AsyncConnection) -> int:
        await connection.exec_driver_sql("CREATE TEMPORARY TABLE written ()")
        return await process_id(connection)

    async def write_by_driver(driver: asyncpg.Connection) -> int:
        await driver.execute("CREATE TEMPORARY TABLE written ()")
        return int(await driver.fetchval("SELECT pg_backend_pid()"))

    async def written() -> int:
        if by_driver:
            return await database.write_by_driver(write_by_driver)
        return await database.write(write)

    before = await database.read(demoted)
    with pytest.raises(StorageUnavailable) as caught:
        await written()
    assert caught.value.retry_after_seconds
    assert await written() != before
    await database.close()
