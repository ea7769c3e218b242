"""Runs jobs in a process of their own, under a memory limit and a deadline.

The process is started for the first job and kept for the next ones. A job that fails or overruns
ends with its process; the next job gets a fresh one. A process that was killed is replaced once
and does its job again: a job is a pure function, so nothing is lost but time.
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

ATTEMPTS = 2  # deaths at the same job before it has failed
PAUSE_SECONDS = 0.5  # before another process is started in place of a dead one
CODE = Path(__file__).parents[3]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Child:
    """A training process and the two ends of its pipes that are ours."""

    process: "subprocess.Popen[bytes]"
    jobs: IO[bytes]
    answers: IO[bytes]

    def bury(self) -> int:
        """Its exit code, after its end."""
        self.process.kill()
        code = self.process.wait()
        with suppress(BrokenPipeError):  # what it never read
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
        self._starting = threading.Lock()  # no process is started while or after one is killed
        self._working = threading.Lock()

    def train(self, job: TrainingJob, deadline_seconds: float) -> Outcome:
        """What comes of an encoder update."""
        return outcome_of(self._done(training_message(job), deadline_seconds), job)

    def judge(self, job: JudgingJob, deadline_seconds: float) -> Judgement:
        """What is to be said of an encoder's transfer."""
        return judgement_of(self._done(judging_message(job), deadline_seconds))

    def close(self) -> None:
        """Kill the process, in the middle of a job too."""
        with self._starting:
            self._closing.set()
            if self._child is not None:
                self._child.process.kill()
        with self._working:  # the thread that waits for an answer has noticed
            self._bury()

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
                    self._bury()
                    raise JobOverran(seconds) from None
                raise
        if (reason := answer.header.get("failed")) is not None:
            self._bury()  # what it holds of memory is unknown
            raise JobFailed(reason)
        return answer

    def _living(self) -> _Child:
        with self._starting:
            if self._closing.is_set():
                raise RunnerClosed(RunnerClosed.__doc__)
            if self._child is None:
                self._child = _started(self._command)
            return self._child

    def _bury(self) -> None:
        if self._child is not None:
            self._child.bury()
            self._child = None

    def _note_death(self, child: _Child) -> int:
        """Log and count the death, unless it was us; the exit code."""
        code = child.bury()
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
    """Kill the process unless the block ends in time; what is yielded tells whether that happened."""
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
    # With -P, too: the child runs the code that we run, whatever lies in the working directory.
    path = os.pathsep.join(filter(None, (str(CODE), os.environ.get("PYTHONPATH"))))
    process = subprocess.Popen(  # noqa: S603 - our own module
        (*command, str(theirs)),
        stdin=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        pass_fds=(theirs,),
        process_group=0,  # Ctrl-C is meant for us
    )
    os.close(theirs)
    assert process.stdin is not None  # noqa: S101 - asked for above
    return _Child(process, process.stdin, open(ours, "rb"))
