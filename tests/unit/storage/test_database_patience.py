"""When the time limit of a database operation begins, in virtual time on an engine without a database."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from service.errors import StorageUnavailable
from service.storage.database import Database
from service.storage.drivers.options import DatabaseOptions
from tests.support.virtual_time import run_virtually

POOL_SIZE = 2
LIMIT_SECONDS = 1.0


class Dialect:
    name = "postgresql"


class Engine:
    """Has two connections, as SQLAlchemy's pool would."""

    dialect = Dialect()

    def __init__(self) -> None:
        self._free = asyncio.Semaphore(POOL_SIZE)

    def execution_options(self, **_: Any) -> "Engine":
        return self

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[None]:
        async with self._free:
            yield


async def outcomes(count: int, seconds: float, *, is_patient: bool) -> list[object]:
    """The outcomes of `count` concurrent operations of `seconds` each."""
    options = DatabaseOptions(
        pool_size=POOL_SIZE, timeout_seconds=LIMIT_SECONDS, is_patient=is_patient
    )
    database = Database(cast("AsyncEngine", Engine()), options)

    async def work(_: AsyncConnection) -> str:
        await asyncio.sleep(seconds)
        return "done"

    return list(
        await asyncio.gather(*(database.read(work) for _ in range(count)), return_exceptions=True)
    )


@pytest.mark.parametrize("is_patient", [False, True])
def test_a_trainer_waits_for_a_connection_and_others_give_up(*, is_patient: bool):
    found = run_virtually(outcomes(20, 0.4, is_patient=is_patient))
    if is_patient:
        assert found == ["done"] * 20
    else:
        assert found.count("done") == 4
        assert sum(isinstance(each, StorageUnavailable) for each in found) == 16


def test_an_operation_that_hangs_is_given_up_all_the_same():
    (found,) = run_virtually(outcomes(1, 60.0, is_patient=True))
    assert isinstance(found, StorageUnavailable)
