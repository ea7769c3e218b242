"""Long requests: their work in slices in one thread, few requests at a time, their memory given back.

A thread lets go of the interpreter between two operations, not within one: a slice makes no call that
takes more than some milliseconds. The slices of several requests alternate.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from service.errors import Overloaded
from service.ops.process_tuning import give_back

T = TypeVar("T")

AT_ONCE = 2  # requests whose scores and answers are in memory
MOST_WAITING = 64
MOST_ARMS_ON_LOOP = 10_000  # of all rows: choosing and encoding them takes about 10 ms
MOST_JOINED_ON_LOOP = 1 << 20  # bytes
REST_SECONDS = 5.0  # after the last long request its answer was sent
_END = object()


class LongWork:
    """Works off requests of more than `MOST_ARMS_ON_LOOP` arms."""

    def __init__(self, give_back: Callable[[], None] = give_back) -> None:
        self._give_back = give_back
        self._thread = ThreadPoolExecutor(1, "daband-long")
        self._places = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        self._rest: asyncio.TimerHandle | None = None

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """Wait until one of few may begin; raises `Overloaded` if too many wait. Later the memory is given back."""
        if self._waiting >= MOST_WAITING:
            raise Overloaded
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._places.release()
            self._give_back_later()

    async def run(self, work: Callable[[], T]) -> T:
        """What one slice of work makes."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def all(self, slices: Iterable[T]) -> list[T]:
        """All that an iterator makes, each item in a slice of its own."""
        made: list[T] = []
        iterator: Iterator[T] = iter(slices)
        while (item := await self.run(lambda: next(iterator, _END))) is not _END:
            made.append(item)  # type: ignore[arg-type]
        return made

    async def joined(self, pieces: Sequence[bytes]) -> bytes:
        """The pieces as one, many bytes in a thread: joining them holds no lock of the interpreter."""
        if sum(map(len, pieces)) <= MOST_JOINED_ON_LOOP:
            return b"".join(pieces)
        return await self.run(lambda: b"".join(pieces))

    def close(self) -> None:
        """End the thread."""
        if self._rest is not None:
            self._rest.cancel()
        self._thread.shutdown()

    def _give_back_later(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        loop = asyncio.get_running_loop()
        self._rest = loop.call_later(REST_SECONDS, self._thread.submit, self._give_back)
