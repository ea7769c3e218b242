"""One queue of waiting writes in a process, committed together."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import Overloaded, ServiceError, StorageUnavailable
from service.storage.deadlines import Deadlines

Call = TypeVar("Call")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Bounds of the queue, counted in events, and of the time that callers wait.

    Calls that nobody waits for lie for `linger_seconds` at most, so that many share a commit.
    """

    max_batch: int = 256
    max_waiting: int = 4096
    timeout_seconds: float = 1.0
    linger_seconds: float = 0.01


@dataclass(slots=True)
class _Waiting(Generic[Call, Result]):
    """A call with whoever waits for its result, or whom to tell that nothing came of it."""

    call: Call
    size: int
    answer: asyncio.Future[Result] | None
    on_failure: Callable[[ServiceError], None] = lambda _: None

    @property
    def is_over(self) -> bool:
        """Whether nobody waits any more."""
        return self.answer is not None and self.answer.done()


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
        self._is_well = True  # whether the last batch could be written
        self._lingering: asyncio.TimerHandle | None = None
        self._deadlines = Deadlines(self._options.timeout_seconds, StorageUnavailable)
        self.waiting_count = 0

    async def submit(self, call: Call, size: int = 1) -> Result:
        """The call's result, once durable.

        Raises its refusal, `Overloaded` when the queue is full, and `StorageUnavailable` when
        the database fails or takes too long: the call may then have been written or not. A
        caller that gives up while its call still waits takes it back.
        """
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._put(_Waiting(call, size, answer))
        self._arrived.set()
        self._deadlines.watch(answer)
        return await answer

    @property
    def can_lag(self) -> bool:
        """Whether calls may be left to be committed later: the last batch was, and few wait."""
        return self._is_well and self.waiting_count < self._options.max_waiting // 2

    def submit_later(
        self, call: Call, size: int, on_failure: Callable[[ServiceError], None]
    ) -> None:
        """Commit the call soon, with nobody waiting; `Overloaded` when the queue is full."""
        self._put(_Waiting(call, size, None, on_failure))
        if self.waiting_count >= self._options.max_batch:
            self._arrived.set()
        elif self._lingering is None:
            loop = asyncio.get_running_loop()
            self._lingering = loop.call_later(self._options.linger_seconds, self._arrived.set)

    def _put(self, waiting: _Waiting[Call, Result]) -> None:
        if self._is_closed:
            raise StorageUnavailable("The service is shutting down.")
        if self._queue and self.waiting_count + waiting.size > self._options.max_waiting:
            raise Overloaded
        self._queue.append(waiting)
        self.waiting_count += waiting.size

    async def run(self) -> None:
        """Commit what arrives until closed and empty; meant for a supervisor."""
        self._idle.clear()
        try:
            while not (self._is_closed and not self._queue):
                await self._arrived.wait()
                self._arrived.clear()
                self._stop_lingering()
                await self._drain()
        finally:
            self._idle.set()

    async def close(self) -> None:
        """Take no more calls and commit those that wait, whether or not `run` still runs."""
        self._is_closed = True
        self._stop_lingering()
        self._arrived.set()
        await self._idle.wait()
        await self._drain()

    def _stop_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    async def _drain(self) -> None:
        while batch := self._take():
            size = sum(each.size for each in batch)
            wanted, started = size + self.waiting_count, time.monotonic()
            try:
                await self._settle(batch)
            except BaseException:
                # Only when `commit` broke its promise or the flusher was cancelled.
                for waiting in batch:
                    _fail(waiting, StorageUnavailable())
                raise
            self._on_batch(size, wanted, time.monotonic() - started)

    def _take(self) -> list[_Waiting[Call, Result]]:
        batch: list[_Waiting[Call, Result]] = []
        room = self._options.max_batch
        while self._queue and (not batch or self._queue[0].size <= room):
            waiting = self._queue.popleft()
            self.waiting_count -= waiting.size
            if not waiting.is_over:  # cancelled or timed out while it waited
                batch.append(waiting)
                room -= waiting.size
        return batch

    async def _settle(self, batch: Sequence[_Waiting[Call, Result]]) -> None:
        try:
            results = await self._commit([waiting.call for waiting in batch])
        except ServiceError as error:
            await self._settle_failure(batch, error)
        else:
            self._is_well = True
            for waiting, result in zip(batch, results, strict=True):
                _answer(waiting, result)

    async def _settle_failure(
        self, batch: Sequence[_Waiting[Call, Result]], error: ServiceError
    ) -> None:
        self._is_well = not isinstance(error, StorageUnavailable)
        if not self._is_well or len(batch) == 1:
            for waiting in batch:
                _fail(waiting, type(error)(error.detail))
            return
        # One call holds a value that the database refuses: alone, only that one fails.
        for waiting in batch:
            await self._settle([waiting])


def _answer(waiting: _Waiting[Call, Result], result: Result | ServiceError) -> None:
    if isinstance(result, ServiceError):
        _fail(waiting, result)
    elif waiting.answer is not None and not waiting.answer.done():
        waiting.answer.set_result(result)


def _fail(waiting: _Waiting[Call, Result], error: ServiceError) -> None:
    if waiting.answer is None:
        waiting.on_failure(error)
    elif not waiting.answer.done():
        waiting.answer.set_exception(error)
