"""Schedules jobs of many experiments on few training processes.

Start-time fair queueing: jobs of experiments that have used less training time run first. One process
takes any job, one takes short jobs and the others take only quick jobs, so that long jobs never block all
processes. A job that exceeds its process's limit is stopped and run again in another process.
"""

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

from service.learning.jobs.job import JobOverran, JobRunner

Work = Callable[[JobRunner, float], Any]  # takes a runner and a deadline in seconds


# The longest expected times of short and quick jobs, which are stopped after `GRACE` times that.
SHORT_SECONDS, QUICK_SECONDS = 10.0, 2.0
GRACE = 6.0


@dataclass(eq=False, slots=True)
class _Job:
    owner: str
    work: Work
    expected_seconds: float
    result: "asyncio.Future[Any]"
    start: float = 0.0  # virtual start time


@dataclass(slots=True)
class _Slot:
    runner: JobRunner
    longest_seconds: float  # longest expected time of its jobs
    deadline_seconds: float  # when they are stopped
    is_free: bool = True


class _VirtualTime:
    """The training time that each experiment has used since the queue was last empty."""

    def __init__(self) -> None:
        self._now = 0.0
        self._used: dict[str, float] = {}

    def start(self, owner: str) -> float:
        """The virtual start time of an experiment's next job; idle time earns no credit."""
        return max(self._now, self._used.get(owner, 0.0))

    def begin(self, owner: str) -> float:
        """Start an experiment's job; returns its virtual start time."""
        self._now = self.start(owner)
        return self._now

    def end(self, owner: str, start: float, seconds: float) -> None:
        """End a job with this virtual start time and duration."""
        self._used[owner] = max(self._used.get(owner, 0.0), start) + seconds

    def reset(self) -> None:
        """Forget all used time, when the queue is empty."""
        self._now = 0.0
        self._used.clear()


class JobQueue:
    """Runs jobs of experiments on runners; `on_change` is called with the number of waiting jobs."""

    def __init__(
        self,
        runners: Sequence[JobRunner],
        deadline_seconds: float,
        on_change: Callable[[int], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._on_change = on_change
        longest = chain((math.inf, SHORT_SECONDS), repeat(QUICK_SECONDS))
        self._slots = [
            _Slot(runner, seconds, min(deadline_seconds, GRACE * seconds))
            for runner, seconds in zip(runners, longest, strict=False)
        ]
        self._executor = ThreadPoolExecutor(len(runners), "daband-training")
        self._waiting: list[_Job] = []
        self._running: set[_Job] = set()
        self._time = _VirtualTime()
        self._last_seconds: dict[str, float] = {}  # of each experiment's last job
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, owner: str, work: Work, expected_seconds: float) -> "asyncio.Future[Any]":
        """Queue work; returns the future of its result, which can be cancelled while it waits."""
        job = _Job(
            owner,
            work,
            self._last_seconds.get(owner, expected_seconds),
            asyncio.get_running_loop().create_future(),
        )
        self._waiting.append(job)
        self._dispatch()
        return job.result

    def is_running(self, result: "asyncio.Future[Any]") -> bool:
        """Whether a submitted job has begun and not ended."""
        return any(job.result is result for job in self._running)

    def close(self) -> None:
        """Close all runners and cancel waiting jobs."""
        for slot in self._slots:
            slot.runner.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
        for job in self._waiting:
            job.result.cancel()

    def _dispatch(self) -> None:
        self._waiting = [job for job in self._waiting if not job.result.cancelled()]
        # Quick jobs prefer the processes for quick jobs, to keep the others free.
        for slot in sorted(self._slots, key=lambda each: each.longest_seconds):
            if slot.is_free and (job := self._next(slot)) is not None:
                self._begin(slot, job)
        self._on_change(len(self._waiting))

    def _next(self, slot: _Slot) -> _Job | None:
        fitting = [job for job in self._waiting if job.expected_seconds <= slot.longest_seconds]
        return min(
            fitting,
            key=lambda job: (self._time.start(job.owner), job.expected_seconds),
            default=None,
        )

    def _begin(self, slot: _Slot, job: _Job) -> None:
        self._waiting.remove(job)
        self._running.add(job)
        slot.is_free = False
        job.start = self._time.begin(job.owner)
        task = asyncio.create_task(self._run(slot, job), name="training-job")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, slot: _Slot, job: _Job) -> None:
        loop, began = asyncio.get_running_loop(), self._clock()
        try:
            done = await loop.run_in_executor(
                self._executor, job.work, slot.runner, slot.deadline_seconds
            )
        except JobOverran as error:
            self._handle_overrun(slot, job, error)
        except Exception as error:  # noqa: BLE001 - raised for the experiment that submitted the job
            _fail(job, error)
        else:
            if not job.result.done():
                job.result.set_result(done)
        finally:
            self._end(slot, job, self._clock() - began)

    def _handle_overrun(self, slot: _Slot, job: _Job, error: JobOverran) -> None:
        if slot.deadline_seconds >= self._deadline_seconds:
            _fail(job, error)
            return
        job.expected_seconds = slot.deadline_seconds
        self._waiting.append(job)

    def _end(self, slot: _Slot, job: _Job, seconds: float) -> None:
        self._running.discard(job)
        slot.is_free = True
        self._time.end(job.owner, job.start, seconds)
        self._last_seconds[job.owner] = seconds
        if not self._waiting and not self._running:
            self._time.reset()
        self._dispatch()


def _fail(job: _Job, error: Exception) -> None:
    if not job.result.done():
        job.result.set_exception(error)
        job.result.exception()  # marks it as retrieved: the experiment may no longer be led here
