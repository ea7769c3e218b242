"""Runs jobs in a separate process, with a memory limit and a deadline.

The process is started for the first job and reused. If a job fails or exceeds its deadline, its process is
killed and the next job gets a new one. If the process was killed, the job is run once more in a new one:
jobs are pure functions, so only time is lost.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from model import (
    Judgement,
    JudgingJob,
    Message,
    Outcome,
    TrainingJob,
    judgement_of,
    judging_message,
    outcome_of,
    training_message,
)
from service.learning.jobs.job import JobFailed, JobOverran, RunnerClosed
from service.learning.jobs.pipe import PipeClosed, receive, send

ATTEMPTS = 2  # process deaths until a job counts as failed
PAUSE_SECONDS = 0.5  # before a dead process is replaced
CODE = Path(__file__).parents[3]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Child:
    """A training process and our ends of its pipes."""

    process: "subprocess.Popen[bytes]"
    jobs: IO[bytes]
    answers: IO[bytes]

    def stop(self) -> int:
        """Kill the process and return its exit code."""
        self.process.kill()
        code = self.process.wait()
        with suppress(BrokenPipeError):  # unread data
            self.jobs.close()
        self.answers.close()
        return code


class ProcessRunner:
    """Runs jobs in a child process; used by one thread, closed by any."""

    def __init__(
        self,
        device: str,
        memory_bytes: int,
        on_death: Callable[[], None],
        python: str = sys.executable,
    ) -> None:
        module = "service.learning.jobs.training_process"
        self._command = (python, "-P", "-m", module, device, str(memory_bytes))
        self._on_death = on_death
        self._child: _Child | None = None
        self._closing = threading.Event()
        self._starting = threading.Lock()  # no process is started during or after `close`
        self._working = threading.Lock()

    def train(self, job: TrainingJob, deadline_seconds: float) -> Outcome:
        return outcome_of(self._done(training_message(job), deadline_seconds), job)

    def judge(self, job: JudgingJob, deadline_seconds: float) -> Judgement:
        return judgement_of(self._done(judging_message(job), deadline_seconds))

    def close(self) -> None:
        """Kill the process, even during a job."""
        with self._starting:
            self._closing.set()
            if self._child is not None:
                self._child.process.kill()
        with self._working:  # wait until the thread with the job has noticed
            self._stop_child()

    def _done(self, message: Message, deadline_seconds: float) -> Message:
        with self._working:
            code = 0
            for _ in range(ATTEMPTS):
                child = self._living()
                try:
                    return self._answer(child, message, deadline_seconds)
                except PipeClosed:
                    code = self._note_death(child)
        raise JobFailed(f"its process died (exit code {code})")

    def _answer(self, child: _Child, message: Message, seconds: float) -> Message:
        with _killed_after(child, seconds) as has_overrun:
            try:
                send(child.jobs, message)
                answer = receive(child.answers)
            except PipeClosed:
                if has_overrun():
                    self._stop_child()
                    raise JobOverran(seconds) from None
                raise
        if (reason := answer.header.get("failed")) is not None:
            self._stop_child()  # how much memory it still holds is unknown
            raise JobFailed(reason)
        return answer

    def _living(self) -> _Child:
        with self._starting:
            if self._closing.is_set():
                raise RunnerClosed(RunnerClosed.__doc__)
            if self._child is None:
                self._child = _started(self._command)
            return self._child

    def _stop_child(self) -> None:
        if self._child is not None:
            self._child.stop()
            self._child = None

    def _note_death(self, child: _Child) -> int:
        """Log and count the death, unless we are closing; returns the exit code."""
        code = child.stop()
        self._child = None
        if self._closing.is_set():
            raise RunnerClosed(RunnerClosed.__doc__)
        self._on_death()
        details = {"action": "training_process_died", "process_id": child.process.pid, "code": code}
        log.error("the training process died", extra=details)
        self._closing.wait(PAUSE_SECONDS)
        return code


@contextmanager
def _killed_after(child: _Child, seconds: float) -> Iterator[Callable[[], bool]]:
    """Kill the process unless the block ends in time; yields a function that says whether it was."""
    overrun = threading.Event()

    def kill() -> None:
        overrun.set()
        child.process.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield overrun.is_set
    finally:
        timer.cancel()


def _started(command: tuple[str, ...]) -> _Child:
    ours, theirs = os.pipe()
    # With -P and this path the child runs the same code, whatever the working directory contains.
    path = os.pathsep.join(filter(None, (str(CODE), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(  # noqa: S603 - our own module
        (*command, str(theirs)),
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        pass_fds=(theirs,),
        process_group=0,  # Ctrl-C must reach only the parent
    )
    os.close(theirs)
    assert process.stdin is not None  # noqa: S101 - asked for above
    return _Child(process, process.stdin, open(ours, "rb"))
