"""What the commands share that work on the database themselves: settings, and refusals as one line."""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Coroutine
from typing import Any, NoReturn, TypeVar

import typer
from pydantic import ValidationError

from service.app import OutdatedSchemaError
from service.cli.options import fail
from service.errors import InvalidRequest, ServiceError
from service.ops import logs
from service.settings import Settings
from service.storage.drivers.migrate import NewerSchemaError
from service.storage.startup import DatabaseNotReadyError

T = TypeVar("T")

INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # as shells have it


def settings_from(**options: Any) -> Settings:
    """The settings, overridden by the given options."""
    given = {name: value for name, value in options.items() if value is not None}
    try:
        found = Settings(**given)
    except ValidationError as error:
        # Only the rules, not the values: a URL may contain a password.
        fail("\n".join(_place(each) for each in error.errors()))
    logs.configure(found.log_level, found.log_format)
    return found


def run(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; a service error ends the command with a message, a signal at once."""
    try:
        with asyncio.Runner() as runner:
            try:
                return runner.run(_ending_on_sigterm(work))
            except KeyboardInterrupt:
                _leave(INTERRUPTED)
            except asyncio.CancelledError:
                _leave(TERMINATED)
    except InvalidRequest as error:
        places = error.members.get("errors", [])
        fail("\n".join(f"{each['pointer']} {each['detail']}" for each in places) or str(error))
    except (OutdatedSchemaError, NewerSchemaError, DatabaseNotReadyError, ServiceError) as error:
        fail(str(error))


async def _ending_on_sigterm(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which SIGTERM cancels; in a container nothing else would end it."""
    task = asyncio.create_task(work)
    if threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def _leave(code: int) -> NoReturn:
    """End the process; the work was cancelled, but a thread may go on computing for long."""
    typer.echo("stopped", err=True)
    sys.stdout.flush()
    os._exit(code)


def _place(error: Any) -> str:
    where = ".".join(map(str, error["loc"]))
    message = str(error["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message
