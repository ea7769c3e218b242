"""Progress on the terminal: bars where rich is installed, a line a finished run elsewhere."""

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from benchmarks.paper.jobs import Job


class Progress(Protocol):
    """Observes the progress of runs."""

    def watch(self, job: Job) -> Callable[[int], None]:
        """A run begins; the returned function is called with the rounds played."""

    def finished(self, job: Job, record: dict[str, Any]) -> None:
        """A run is written."""


@contextmanager
def progress(jobs: int) -> Iterator[Progress]:
    """Progress over all jobs."""
    if importlib.util.find_spec("rich") is None:
        yield Lines(jobs)
        return
    from benchmarks.paper.progress_bars import bars

    with bars(jobs) as shown:
        yield shown


class Lines:
    """A line a finished run."""

    def __init__(self, jobs: int) -> None:
        self._jobs, self._done = jobs, 0

    def watch(self, job: Job) -> Callable[[int], None]:
        """Nothing is shown before the end."""
        return lambda rounds: None

    def finished(self, job: Job, record: dict[str, Any]) -> None:
        """Print it."""
        self._done += 1
        print(f"[{self._done}/{self._jobs}] {job.outcome(record)}", flush=True)
