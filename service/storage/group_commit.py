"""One queue of waiting writes in a process, committed together."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import Overloaded, ServiceError, StorageUnavailable

Call = TypeVar("Call")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Bounds of the queue, counted in events."""

    max_batch: int = 256
    max_waiting: int = 4096
    timeout_seconds: float = 1.0


@dataclass(slots=True)
class _Waiting(Generic[Call, Result]):
    call: Call
    size: int
    answer: asyncio.Future[Result]


def _ignore(event_count: int, waiting: int, seconds: float) -> None:
    """Observe nothing."""


class GroupCommit(Generic[Call, Result]):
    """Gives each caller its own result once the batch that its call was in is durable.

    `commit` takes a batch and returns a result or a refusal for each call of it; when it raises,
    nothing of the batch counts as written. `on_batch` is told the number of events, of those that
    waited as it began, and the seconds of every batch.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Call]], Awaitable[Sequence[Result | ServiceError]]],
        options: CommitOptions | None = None,
        on_batch: Callable[[int, int, float], None] = _ignore,
    ) -> None:
        self._commit = commit
        self._options = options or CommitOptions()
        self._on_batch = on_batch
        self._queue: deque[_Waiting[Call, Result]] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False
        self.waiting_count = 0

    async def submit(self, call: Call, size: int = 1) -> Result:
        """The call's result, once durable.

        Raises its refusal, `Overloaded` when the queue is full, and `StorageUnavailable` when
        the database fails or takes too long: the call may then have been written or not. A
        caller that gives up while its call still waits takes it back.
        """
        if self._is_closed:
            raise StorageUnavailable("The service is shutting down.")
        if self._queue and self.waiting_count + size > self._options.max_waiting:
            raise Overloaded
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(call, size, answer))
        self.waiting_count += size
        self._arrived.set()
        try:
            async with asyncio.timeout(self._options.timeout_seconds):
                return await answer
        except TimeoutError as error:
            raise StorageUnavailable from error

    async def run(self) -> None:
        """Commit what arrives until closed and empty; meant for a supervisor."""
        self._idle.clear()
        try:
            while not (self._is_closed and not self._queue):
                await self._arrived.wait()
                self._arrived.clear()
                await self._drain()
        finally:
            self._idle.set()

    async def close(self) -> None:
        """Take no more calls and commit those that wait, whether or not `run` still runs."""
        self._is_closed = True
        self._arrived.set()
        await self._idle.wait()
        await self._drain()

    async def _drain(self) -> None:
        while batch := self._take():
            size = sum(each.size for each in batch)
            wanted, started = size + self.waiting_count, time.monotonic()
            try:
                await self._settle(batch)
            finally:
                # Only when `commit` broke its promise or the flusher was cancelled.
                for waiting in batch:
                    _fail(waiting, StorageUnavailable())
            self._on_batch(size, wanted, time.monotonic() - started)

    def _take(self) -> list[_Waiting[Call, Result]]:
        batch: list[_Waiting[Call, Result]] = []
        room = self._options.max_batch
        while self._queue and (not batch or self._queue[0].size <= room):
            waiting = self._queue.popleft()
            self.waiting_count -= waiting.size
            if not waiting.answer.done():  # cancelled or timed out while it waited
                batch.append(waiting)
                room -= waiting.size
        return batch

    async def _settle(self, batch: Sequence[_Waiting[Call, Result]]) -> None:
        try:
            results = await self._commit([waiting.call for waiting in batch])
        except ServiceError as error:
            await self._settle_failure(batch, error)
        else:
            for waiting, result in zip(batch, results, strict=True):
                _answer(waiting, result)

    async def _settle_failure(
        self, batch: Sequence[_Waiting[Call, Result]], error: ServiceError
    ) -> None:
        if isinstance(error, StorageUnavailable) or len(batch) == 1:
            for waiting in batch:
                _fail(waiting, type(error)(error.detail))
            return
        # One call holds a value that the database refuses: alone, only that one fails.
        for waiting in batch:
            await self._settle([waiting])


def _answer(waiting: _Waiting[Call, Result], result: Result | ServiceError) -> None:
    if isinstance(result, ServiceError):
        _fail(waiting, result)
    elif not waiting.answer.done():
        waiting.answer.set_result(result)


def _fail(waiting: _Waiting[Call, Result], error: ServiceError) -> None:
    if not waiting.answer.done():
        waiting.answer.set_exception(error)
