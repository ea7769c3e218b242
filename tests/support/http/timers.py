"""Timers that go off when a test says so."""

import asyncio
from collections.abc import Callable
from typing import Any


class VirtualTimers:
    """An event loop whose `call_later` and `time` follow a clock that only `advance` moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._now = 0.0
        self._timers: list[asyncio.TimerHandle] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(self._now + delay, callback, args, self._loop)
        self._timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        """Let so much time pass; what falls due meanwhile is called, in order."""
        end = self._now + seconds
        while timer := self._next(end):
            self._timers.remove(timer)
            self._now = timer.when()
            timer._run()
        self._now = end

    def _next(self, end: float) -> asyncio.TimerHandle | None:
        due = [each for each in self._timers if not each.cancelled() and each.when() <= end]
        return min(due, key=asyncio.TimerHandle.when, default=None)
