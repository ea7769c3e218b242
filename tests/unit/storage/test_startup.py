"""How long a process waits for its database, and what it says; in virtual time."""

import asyncio
import logging
import sqlite3
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from service.errors import StorageUnavailable
from service.storage import startup
from service.storage.startup import DatabaseNotReadyError, patiently
from tests.support.virtual_time import run_virtually

DATABASE: Any = SimpleNamespace(failing_quietly=nullcontext)
STARTING = asyncpg.CannotConnectNowError("the database system is starting up")
NO_PASSWORD = asyncpg.InvalidPasswordError('password authentication failed for user "lab"')


class Attempts:
    """Fail with this cause for so many seconds."""

    def __init__(self, seconds: float, cause: BaseException | None) -> None:
        self._seconds = seconds
        self._cause = cause
        self.times: list[float] = []

    async def __call__(self) -> str:
        now = asyncio.get_running_loop().time()
        self.times.append(now)
        if now < self._seconds:
            raise StorageUnavailable from self._cause
        return "there"


def opened(attempts: Attempts, seconds: float) -> str:
    return run_virtually(patiently(DATABASE, attempts, seconds))


def actions(records: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(each.levelname, vars(each)["action"]) for each in records.records]


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, startup.__name__)


def test_nothing_is_said_of_a_database_that_is_there(caplog: pytest.LogCaptureFixture):
    assert opened(Attempts(0, None), 60) == "there"
    assert actions(caplog) == []


@pytest.mark.parametrize("cause", [None, STARTING, ConnectionRefusedError(111, "refused")])
def test_a_wait_is_logged_when_it_begins_and_when_it_ends(
    cause: BaseException | None, caplog: pytest.LogCaptureFixture
):
    attempts = Attempts(59, cause)
    assert opened(attempts, 60) == "there"
    assert actions(caplog) == [("WARNING", "startup_waits"), ("INFO", "startup_continues")]
    pauses = [after - before for before, after in pairwise(attempts.times)]
    assert pauses[:5] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6])
    assert max(pauses) == pytest.approx(startup.LONGEST_PAUSE_SECONDS)


def test_it_gives_up_when_the_time_is_over_and_says_why():
    attempts = Attempts(1000, STARTING)
    with pytest.raises(DatabaseNotReadyError, match=r"=5\): the database system is starting up"):
        opened(attempts, 5)
    assert attempts.times[-1] == 5


def test_without_patience_it_asks_once(caplog: pytest.LogCaptureFixture):
    attempts = Attempts(1000, None)
    with pytest.raises(DatabaseNotReadyError, match="is not ready: it does not answer in time"):
        opened(attempts, 0)
    assert (attempts.times, actions(caplog)) == ([0], [])


def sqlite_error(code: int) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (NO_PASSWORD, "password authentication failed"),
        (sqlite_error(sqlite3.SQLITE_CANTOPEN), "unable to open"),
        (asyncpg.InsufficientPrivilegeError("select secret"), "InsufficientPrivilegeError$"),
    ],
)
def test_what_time_does_not_cure_ends_the_wait_at_once(cause: BaseException, reason: str):
    attempts = Attempts(1000, cause)
    with pytest.raises(DatabaseNotReadyError, match=reason):
        opened(attempts, 60)
    assert attempts.times == [0]


@pytest.mark.parametrize(
    "cause",
    [
        sqlite_error(sqlite3.SQLITE_BUSY),
        asyncpg.InvalidCatalogNameError('database "lab" does not exist'),
        asyncpg.TooManyConnectionsError("too many clients"),
    ],
)
def test_what_others_may_cure_is_waited_for(cause: BaseException):
    assert opened(Attempts(10, cause), 60) == "there"
