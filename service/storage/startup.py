"""Patience with a database while a process starts."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from service.errors import StorageUnavailable
from service.storage.database import Database
from service.storage.drivers.driver_errors import is_final, reason

T = TypeVar("T")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0

log = logging.getLogger(__name__)


class DatabaseNotReadyError(Exception):
    """The database cannot be used, or could not for as long as a process waits; says why."""


async def patiently(database: Database, attempt: Callable[[], Awaitable[T]], seconds: float) -> T:
    """The result of `attempt`, which is repeated for so long while the database is unavailable.

    What waiting does not cure, such as a wrong password, is raised at once.
    """
    loop = asyncio.get_running_loop()
    began, pause = loop.time(), FIRST_PAUSE_SECONDS
    with database.failing_quietly():
        while True:
            try:
                result = await attempt()
            except StorageUnavailable as error:
                cause, waited = error.__cause__, loop.time() - began
                if is_final(cause):
                    raise DatabaseNotReadyError(f"The database refused: {reason(cause)}") from error
                if waited >= seconds:
                    raise DatabaseNotReadyError(_gave_up(seconds, cause)) from error
            else:
                break
            if pause == FIRST_PAUSE_SECONDS:
                _note_wait(cause, seconds)
            await asyncio.sleep(min(pause, seconds - waited))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
    if pause > FIRST_PAUSE_SECONDS:
        details = {"action": "startup_continues", "seconds": round(loop.time() - began, 1)}
        log.info("the database is there", extra=details)
    return result


def _note_wait(cause: BaseException | None, seconds: float) -> None:
    # The class only: a message may name users and addresses.
    name = type(cause).__name__ if cause else "TimeoutError"
    details = {"action": "startup_waits", "error": name, "longest_seconds": seconds}
    log.warning("waiting for the database", extra=details)


def _gave_up(seconds: float, cause: BaseException | None) -> str:
    said = f" (DABAND_STARTUP_SECONDS={seconds:g})" if seconds else ""
    return f"The database is not ready{said}: {reason(cause)}"
