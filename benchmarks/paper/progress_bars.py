"""Progress bars by rich: one over all runs, and one for each run of this process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import Progress, TaskID

from benchmarks.paper.jobs import Job
from service.cli.options import progress_display


class Bars:
    """The bars of the runs under way; finished ones become a line above them."""

    def __init__(self, shown: Progress, jobs: int) -> None:
        self._shown = shown
        self._all = shown.add_task("runs", total=jobs)
        self._tasks: dict[Job, TaskID] = {}

    def watch(self, job: Job) -> Callable[[int], None]:
        """A bar for a run that begins."""
        task = self._tasks[job] = self._shown.add_task(job.label, total=job.total_rounds)
        return lambda rounds: self._shown.advance(task, rounds)

    def finished(self, job: Job, record: dict[str, Any]) -> None:
        """Its bar goes, its outcome stays."""
        if job in self._tasks:
            self._shown.remove_task(self._tasks.pop(job))
        self._shown.print(job.outcome(record))
        self._shown.advance(self._all)


@contextmanager
def bars(jobs: int) -> Iterator[Bars]:
    """Bars over all jobs."""
    with progress_display() as shown:
        yield Bars(shown, jobs)
