"""The order in which the writers of this process write to SQLite."""

import asyncio
from collections import deque


class WriteLock:
    """One writer at a time; those that go first pass all others, which keep their order.

    Callers of selects and rewards wait for appends, and nobody waits for a trainer's writes. Appends are
    one batch at a time, so another writer waits for one of them, not for all.
    """

    def __init__(self) -> None:
        self._is_locked = False
        self._first: deque[asyncio.Future[None]] = deque()
        self._others: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()

    async def acquire(self, *, goes_first: bool = False) -> None:
        """Wait for the lock; a waiter that is cancelled does not keep it."""
        if not self._is_locked:
            self._is_locked = True
            return
        waiter = asyncio.get_running_loop().create_future()
        (self._first if goes_first else self._others).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it got the lock just before
                self.release()
            raise

    def release(self) -> None:
        """Hand the lock to the next waiter, if there is one."""
        for queue in (self._first, self._others):
            while queue:
                waiter = queue.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    return
        self._is_locked = False

    def locked(self) -> bool:
        """Whether somebody writes."""
        return self._is_locked

    @property
    def waiting(self) -> int:
        """How many writers wait."""
        return sum(not waiter.done() for waiter in (*self._first, *self._others))
