"""A copy of a running Postgres that follows it, and may take its place."""

import asyncio

import asyncpg

from tests.support.processes.servers import PostgresServer
from tests.support.waiting import eventually

FOLLOWERS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"


class Standby(PostgresServer):
    """A standby of `primary`, which must be running; its commits wait for it after `follow`."""

    def __init__(self, primary: PostgresServer) -> None:
        self._primary = primary
        super().__init__()

    def _make_data(self) -> None:
        place = f"host=127.0.0.1 port={self._primary.port} user=postgres"
        options = ("--write-recovery-conf", "--checkpoint=fast", "--no-sync")
        self._run("pg_basebackup", "-D", str(self._data), "-d", place, *options)

    async def follow(self) -> None:
        """Have every commit of the primary wait until this server has it.

        This server has the same setting, as one that was made by a copy of such a primary.
        """
        for server in (self._primary, self):
            await _wait_for_standbys(server, "*")

        async def is_followed() -> bool:
            return bool(await ask(self._primary, FOLLOWERS))

        await eventually(is_followed)

    async def promote(self) -> None:
        """Take writes from now on, and wait for nobody."""
        await _wait_for_standbys(self, "")
        assert await ask(self, "SELECT pg_promote(wait => true)")


async def _wait_for_standbys(server: PostgresServer, names: str) -> None:
    await ask(server, f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    await ask(server, "SELECT pg_reload_conf()")


async def ask(server: PostgresServer, statement: str) -> object:
    """The first value of a statement's answer."""
    connection = await asyncpg.connect(server.url())
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


class Promotion:
    """Loses the primary for good, and has its standby take its place."""

    def __init__(self, primary: PostgresServer, standby: Standby) -> None:
        self._primary = primary
        self._standby = standby

    def kill(self) -> None:
        self._primary.kill()

    def start(self) -> None:
        asyncio.run(self._standby.promote())
