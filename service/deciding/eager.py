"""Work that begins at once, and becomes a task only if it has to wait.

A task begins in the next turn of the event loop. What waits for nothing is over by then.
"""

import asyncio
import types
from collections.abc import Coroutine, Generator
from functools import partial
from typing import Any


def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run it up to where it first waits; the task of the rest, none if there is none."""
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return asyncio.create_task(_finish(work, awaited))


async def _finish(work: Coroutine[Any, Any, None], awaited: object) -> None:
    await _rest(work, awaited)


@types.coroutine
def _rest(work: Coroutine[Any, Any, None], awaited: object) -> Generator[object, Any, None]:
    """Pass on what the work waits for, and what comes of it, until it is over."""
    while True:
        try:
            sent = yield awaited
        except BaseException as error:  # noqa: BLE001 - a cancellation, above all: it is the work's to take
            step = partial(work.throw, error)
        else:
            step = partial(work.send, sent)
        try:
            awaited = step()
        except StopIteration:
            return
