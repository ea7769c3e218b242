"""Training and judging jobs: their runners and failures."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from model import Judgement, JudgingJob, Outcome, Recordings, TrainingJob

T = TypeVar("T")


class JobFailed(Exception):  # noqa: N818 - names the outcome of the job
    """A job failed and would fail again, for the reason in the message."""


class JobOverran(JobFailed):
    """The job exceeded its deadline."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it took longer than {seconds:g} s")


class RunnerClosed(Exception):  # noqa: N818 - not an error
    """The process is shutting down; another process will run the job."""


class JobRunner(Protocol):
    """Runs one job at a time, blocking; meant to be called from a thread."""

    def train(self, job: TrainingJob, deadline_seconds: float) -> Outcome:
        """The outcome of an encoder update; raises `JobFailed`."""
        ...

    def judge(self, job: JudgingJob, deadline_seconds: float) -> Judgement:
        """The judgement of an encoder's transfer; raises `JobFailed`."""
        ...

    def close(self) -> None:
        """Abort the running job if possible; called once, from any thread."""
        ...


class ThreadRunner:
    """Runs jobs in the calling thread; it cannot enforce deadlines."""

    def __init__(self) -> None:
        self._recordings = Recordings()

    def train(self, job: TrainingJob, deadline_seconds: float) -> Outcome:
        return _guarded(lambda: job.run(self._recordings))

    def judge(self, job: JudgingJob, deadline_seconds: float) -> Judgement:
        return _guarded(job.run)

    def close(self) -> None:
        """Nothing to do: a thread cannot be stopped."""


def _guarded(run: Callable[[], T]) -> T:
    try:
        return run()
    except Exception as error:
        raise JobFailed(failure_reason(error)) from error


def failure_reason(error: BaseException) -> str:
    """The reason of a failure, without quoting values."""
    if isinstance(error, MemoryError) or "memory" in str(error).lower():
        return "it ran out of memory"
    return f"it raised {type(error).__name__}"
