"""Jobs of learning: what they are, how they fail, and who runs them."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from model import Judgement, JudgingJob, Outcome, Recordings, TrainingJob

T = TypeVar("T")


class JobFailed(Exception):  # noqa: N818 - says what became of the job
    """A job that came to no result, and would not if it were run again; the message says why."""


class JobOverran(JobFailed):
    """The job took longer than it may."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it took longer than {seconds:g} s")


class RunnerClosed(Exception):  # noqa: N818 - an event, not a fault
    """The process is about to end: the job is left to the next one."""


class JobRunner(Protocol):
    """Runs one job at a time and returns when it is done: meant to be called from a thread."""

    def train(self, job: TrainingJob, deadline_seconds: float) -> Outcome:
        """What comes of an encoder update; raises `JobFailed`."""
        ...

    def judge(self, job: JudgingJob, deadline_seconds: float) -> Judgement:
        """What is to be said of an encoder's transfer; raises `JobFailed`."""
        ...

    def close(self) -> None:
        """Give up the job under way where that is possible; called once, from any thread."""
        ...


class ThreadRunner:
    """Runs jobs in the thread that asks, in the memory of this process; deadlines cannot be kept."""

    def __init__(self) -> None:
        self._recordings = Recordings()

    def train(self, job: TrainingJob, deadline_seconds: float) -> Outcome:
        """What comes of an encoder update."""
        return _guarded(lambda: job.run(self._recordings))

    def judge(self, job: JudgingJob, deadline_seconds: float) -> Judgement:
        """What is to be said of an encoder's transfer."""
        return _guarded(job.run)

    def close(self) -> None:
        """Nothing to do: a thread cannot be stopped."""


def _guarded(run: Callable[[], T]) -> T:
    try:
        return run()
    except Exception as error:
        raise JobFailed(failure_reason(error)) from error


def failure_reason(error: BaseException) -> str:
    """Why a job failed, in words that quote no value."""
    if isinstance(error, MemoryError) or "memory" in str(error).lower():
        return "it ran out of memory"
    return f"it raised {type(error).__name__}"
