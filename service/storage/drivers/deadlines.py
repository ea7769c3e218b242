"""One timer for all who wait equally long."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any


class Deadlines:
    """Gives up on futures that are not done after so many seconds.

    All wait equally long, so the oldest is the next to be late: one timer at a time does for
    thousands, at a small part of the cost of one for each.
    """

    def __init__(self, seconds: float, error: Callable[[], Exception]) -> None:
        self._seconds = seconds
        self._error = error
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, future: asyncio.Future[Any]) -> None:
        """Fail the future with the error unless it is done in time."""
        waiting = self._waiting
        while waiting and waiting[0][1].done():
            waiting.popleft()
        loop = future.get_loop()
        waiting.append((loop.time() + self._seconds, future))
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        while self._waiting and (self._waiting[0][1].done() or self._waiting[0][0] <= now):
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(self._error())
        self._timer = None
        if self._waiting:
            self._timer = loop.call_at(self._waiting[0][0], self._expire, loop)
