"""Processes that start before their database."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import Adopt
from tests.support.processes.daband import Daband, Server
from tests.support.processes.servers import PostgresServer, RedisServer, running_server
from tests.support.waiting import eventually


async def waits(process: Daband) -> None:
    """Wait until it waits."""

    def has_said_so() -> bool:
        assert process.is_running, process.tail()
        return bool(process.lines("startup_waits"))

    await eventually(has_said_so, process)


@pytest.fixture
def gone(own_postgres: PostgresServer) -> PostgresServer:
    """A migrated Postgres that does not run now."""
    own_postgres.stop()
    return own_postgres


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
async def test_a_server_waits_for_its_database(
    options: tuple[str, ...],
    folder: Path,
    adopt: Adopt[Daband],
    gone: PostgresServer,
    own_redis: RedisServer,
):
    settings = {"DATABASE_URL": gone.url(), "REDIS_URL": own_redis.url}
    server = Server(folder, *options, **settings)
    adopt(server).start()
    await waits(server)
    gone.start()
    await server.ready()
    assert len(server.lines("startup_waits")) == len(server.lines("startup_continues")) == 1
    assert server.lines("storage_error") == []


async def test_a_trainer_waits_for_its_database(
    folder: Path, adopt: Adopt[Daband], gone: PostgresServer
):
    trainer = adopt(Daband(folder, "train", DATABASE_URL=gone.url()))
    trainer.start()
    await waits(trainer)
    gone.start()
    await eventually(lambda: "daband trains" in trainer.printed, trainer)
    assert trainer.stop() == 0


async def test_migrate_waits_for_its_database(folder: Path, adopt: Adopt[Daband]):
    with running_server(PostgresServer()) as postgres:
        postgres.stop()
        migrate = adopt(Daband(folder, "migrate", DATABASE_URL=postgres.url()))
        migrate.start()
        await waits(migrate)
        postgres.start()
        assert await asyncio.to_thread(migrate.wait) == 0
        assert "schema None →" in migrate.printed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["serve", "train", "migrate"])
async def test_a_signal_ends_the_wait(
    command: str,
    number: signal.Signals,
    folder: Path,
    adopt: Adopt[Daband],
    gone: PostgresServer,
):
    process = adopt(Daband(folder, command, DATABASE_URL=gone.url()))
    process.start()
    await waits(process)
    process.send(number)
    assert await asyncio.to_thread(process.wait) == 128 + number
    assert "stopped" in process.printed
    assert "Traceback" not in process.printed


@pytest.mark.parametrize("command", ["serve", "train", "migrate"])
async def test_it_ends_with_the_reason_in_one_sentence(
    command: str, folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer
):
    stranger = own_postgres.url().replace("postgres@", "stranger@")
    refused = adopt(Daband(folder, command, DATABASE_URL=stranger))
    refused.start()
    assert await asyncio.to_thread(refused.wait) == 2
    assert 'The database refused: role "stranger" does not exist' in refused.printed
    own_postgres.stop()
    late = adopt(Daband(folder, command, DATABASE_URL=own_postgres.url(), STARTUP_SECONDS=0))
    late.start()
    assert await asyncio.to_thread(late.wait) == 2
    assert "The database is not ready: " in late.printed
    for process in (refused, late):
        assert process.lines("startup_waits") == []
        assert "Traceback" not in process.printed
