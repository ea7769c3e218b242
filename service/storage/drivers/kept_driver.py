"""A connection of Postgres's own driver, kept between one append and the next.

The pool lends it, as it does all others. To borrow it and to give it back for each batch, SQLAlchemy
switches between greenlets five times.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

T = TypeVar("T")


class Lent(NamedTuple):
    """What the pool has lent, and the driver's own connection in it."""

    connection: AsyncConnection
    driver: asyncpg.Connection

    async def discard(self) -> None:
        """Give it back as one that must not be used again: its place in the pool is free."""
        # Postgres undoes what a connection had begun that is gone. To ask it for that would
        # be to wait for a server that may be the reason why we are here.
        self.driver.terminate()
        await self.connection.invalidate()


async def lent_driver(connection: AsyncConnection) -> Lent:
    """The driver's own connection in one that is borrowed already; it is in no transaction."""
    driver: Any = (await connection.get_raw_connection()).driver_connection
    return Lent(connection, driver)


class KeptDriver:
    """Lends its connection to one at a time; who finds it taken has another one from the pool."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._idle: Lent | None = None
        self._is_closed = False

    async def use(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """The result of `work`; a connection under which it failed is in doubt, and not used again."""
        lent = await self._taken()
        try:
            result = await work(lent.driver)
        except BaseException:
            await lent.discard()
            raise
        await self._keep(lent)
        return result

    async def close(self) -> None:
        """Give back what is kept, and keep nothing more."""
        self._is_closed = True
        if self._idle is not None:
            await self._idle.connection.close()

    async def _taken(self) -> Lent:
        lent, self._idle = self._idle, None
        if lent is not None and lent.driver.is_closed():  # by the server, while nobody used it
            await lent.discard()
            lent = None
        return lent or await self._borrowed()

    async def _keep(self, lent: Lent) -> None:
        if self._idle is None and not self._is_closed:
            self._idle = lent
        else:
            await lent.connection.close()

    async def _borrowed(self) -> Lent:
        connection = await self._engine.connect()
        try:
            return await lent_driver(connection)
        except BaseException:
            await connection.close()
            raise
