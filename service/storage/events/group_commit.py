"""One queue of writes in a process, committed together."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from service.errors import Overloaded, ServiceError, StorageUnavailable

Call = TypeVar("Call")
Result = TypeVar("Result")

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class CommitOptions:
    """Bounds of the queue, counted in events, and of the time that callers wait.

    Calls without a waiting caller stay in the queue for `linger_seconds` at most, so that many share a
    commit. No more than `relaxed_bound` of their events are unwritten at any time. Closing tries for
    `drain_seconds` to write them.
    """

    max_batch: int = 256
    max_waiting: int = 4096
    timeout_seconds: float = 1.0
    linger_seconds: float = 0.01
    relaxed_bound: int = 512
    drain_seconds: float = 20.0


@dataclass(slots=True)
class _Pending(Generic[Call, Result]):
    """A call, and the future of its caller; without one the caller has been answered already."""

    call: Call
    size: int
    answer: asyncio.Future[Result] | None
    on_lost: Callable[[ServiceError], None] = lambda _: None
    is_concluded: bool = False

    @property
    def is_over(self) -> bool:
        """Whether it is settled, or its caller has given up."""
        return self.is_concluded if self.answer is None else self.answer.done()


class GroupCommit(Generic[Call, Result]):
    """Gives each caller its own result once the batch that its call was in is durable.

    `commit` takes a batch and returns a result or a refusal for each call of it; when it raises, the
    outcome is unknown. A waiting caller then gets the error. A call whose caller was answered before
    is kept, in its place, and committed again as `repeat` makes it, until that succeeds.

    `on_batch` gets the number of events, of those that waited as it began, and the seconds of every
    batch; `on_unwritten` the number of events that are answered and not written, when it changed.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Call]], Awaitable[Sequence[Result | ServiceError]]],
        options: CommitOptions | None = None,
        on_batch: Callable[[int, int, float], None] = lambda *_: None,
        *,
        repeat: Callable[[Call], Call] = lambda call: call,
        on_unwritten: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._commit = commit
        self._options = options or CommitOptions()
        self._on_batch = on_batch
        self._repeat = repeat
        self._on_unwritten = on_unwritten
        self._queue: deque[_Pending[Call, Result]] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closed = False
        self._is_abandoned = False  # closed, and out of time
        self._failures = 0  # batches in a row that could not be written
        self._timer: asyncio.TimerHandle | None = None
        self._reported_unwritten = 0
        self.waiting_count = 0
        self.unwritten_count = 0  # events that are answered and not written: waiting or under way

    async def submit(self, call: Call, size: int = 1) -> Result:
        """The call's result, once durable.

        Raises its refusal, `Overloaded` when the queue is full, and `StorageUnavailable` when
        the database fails or takes too long: the call may then have been written or not. A
        caller that gives up while its call still waits takes it back.
        """
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._put(_Pending(call, size, answer))
        self._arrived.set()
        try:
            async with asyncio.timeout(self._options.timeout_seconds):
                return await answer
        except TimeoutError:
            raise StorageUnavailable from None

    def can_submit_later(self, size: int) -> bool:
        """Whether so many events may be answered before they are written.

        The last batch could be written, and the bound is not exceeded.
        """
        is_within_bound = self.unwritten_count + size <= self._options.relaxed_bound
        return is_within_bound and not self._failures

    def submit_later(self, call: Call, size: int, on_lost: Callable[[ServiceError], None]) -> None:
        """Commit the call soon, without a waiting caller; `Overloaded` when the queue is full.

        `on_lost` is called if the call is refused, or could not be written before the end.
        """
        self._put(_Pending(call, size, None, on_lost))
        self.unwritten_count += size
        if self.waiting_count >= self._options.max_batch:
            self._arrived.set()
        else:
            self._wake_after(self._options.linger_seconds)

    def _put(self, pending: _Pending[Call, Result]) -> None:
        if self._is_closed:
            raise StorageUnavailable("The service is shutting down.")
        if self._queue and self.waiting_count + pending.size > self._options.max_waiting:
            raise Overloaded
        self._queue.append(pending)
        self.waiting_count += pending.size

    async def run(self) -> None:
        """Commit what arrives until closed and empty; meant for a supervisor."""
        self._idle.clear()
        try:
            while not (self._is_closed and not self._queue):
                await self._arrived.wait()
                self._arrived.clear()
                self._stop_timer()
                await self._drain()
        finally:
            self._idle.set()

    async def close(self) -> None:
        """Take no more calls and commit those that wait, whether or not `run` still runs.

        What could not be written within `drain_seconds` is lost.
        """
        self._is_closed = True
        self._arrived.set()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._options.drain_seconds):
                    await self._idle.wait()
                    await self.run()
        finally:
            self._is_abandoned = True
            self._stop_timer()
            self._put_back(self._taken(self.waiting_count))

    def _wake_after(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._arrived.set)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _drain(self) -> None:
        while batch := self._taken(self._options.max_batch):
            size = sum(each.size for each in batch)
            wanted, started = size + self.waiting_count, time.monotonic()
            self._report_unwritten()
            try:
                kept = await self._commit_batch(batch)
            except BaseException:
                # Only when `commit` broke its promise or the task was cancelled.
                self._put_back(self._given_up(batch))
                raise
            self._on_batch(size, wanted, time.monotonic() - started)
            if kept:
                self._put_back(kept)
                self._wake_after(self._retry_seconds())
                return
        self._report_unwritten()

    def _taken(self, most: int) -> list[_Pending[Call, Result]]:
        """The next calls of so many events, at least one; those that are over are left out."""
        batch: list[_Pending[Call, Result]] = []
        while self._queue and (not batch or self._queue[0].size <= most):
            pending = self._queue.popleft()
            self.waiting_count -= pending.size
            if not pending.is_over:
                batch.append(pending)
                most -= pending.size
        return batch

    def _put_back(self, kept: Sequence[_Pending[Call, Result]]) -> None:
        """Let them be the next to be written; too late, they are lost."""
        if self._is_abandoned:
            for pending in kept:
                self._fail(pending, StorageUnavailable())
        else:
            self._queue.extendleft(reversed(kept))
            self.waiting_count += sum(pending.size for pending in kept)
        self._report_unwritten()

    def _retry_seconds(self) -> float:
        return min(FIRST_RETRY_SECONDS * 2.0 ** (self._failures - 1), LAST_RETRY_SECONDS)

    def _report_unwritten(self) -> None:
        if self._reported_unwritten != self.unwritten_count:
            self._reported_unwritten = self.unwritten_count
            self._on_unwritten(self.unwritten_count)

    async def _commit_batch(
        self, batch: Sequence[_Pending[Call, Result]]
    ) -> list[_Pending[Call, Result]]:
        """Commit a batch; those of it that must be committed again, in order."""
        try:
            results = await self._commit([pending.call for pending in batch])
        except StorageUnavailable:
            self._failures += 1
            return self._given_up(batch)
        except ServiceError as error:
            return await self._commit_one_by_one(batch, error)
        self._failures = 0
        for pending, result in zip(batch, results, strict=True):
            self._conclude(pending, result)
        return []

    async def _commit_one_by_one(
        self, batch: Sequence[_Pending[Call, Result]], error: ServiceError
    ) -> list[_Pending[Call, Result]]:
        """One call holds a value that the database refuses: alone, only that one fails."""
        self._failures = 0  # the database answers
        if len(batch) == 1:
            self._fail(batch[0], error)
            return []
        for index, pending in enumerate(batch):
            kept = await self._commit_batch([pending])
            if self._failures:  # the rest must not overtake this one
                return [*kept, *self._given_up(batch[index + 1 :])]
        return []

    def _given_up(self, batch: Iterable[_Pending[Call, Result]]) -> list[_Pending[Call, Result]]:
        """Fail the calls with a waiting caller; return the others, to be committed again."""
        kept: list[_Pending[Call, Result]] = []
        for pending in batch:
            if pending.answer is not None:
                self._fail(pending, StorageUnavailable())
            elif not pending.is_concluded:
                pending.call = self._repeat(pending.call)
                kept.append(pending)
        return kept

    def _conclude(self, pending: _Pending[Call, Result], result: Result | ServiceError) -> None:
        if isinstance(result, ServiceError):
            self._fail(pending, result)
        elif pending.answer is None:
            self._mark_concluded(pending)
        elif not pending.answer.done():
            pending.answer.set_result(result)

    def _fail(self, pending: _Pending[Call, Result], error: ServiceError) -> None:
        if pending.answer is None:
            self._mark_concluded(pending)
            pending.on_lost(error)
        elif not pending.answer.done():
            pending.answer.set_exception(error)

    def _mark_concluded(self, pending: _Pending[Call, Result]) -> None:
        pending.is_concluded = True
        self.unwritten_count -= pending.size
