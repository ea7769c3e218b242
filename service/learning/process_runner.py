"""Runs training jobs in a process of their own, so that learning never holds up serving.

The process is started for the first job and kept for the next ones. When it dies, a new one does
the job again: a job is a pure function, so nothing is lost but time.
"""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from model.job_codec import Message, judgement_of, judging_message, outcome_of, training_message
from model.judging import Judgement, JudgingJob
from model.learner import Outcome, TrainingJob
from service.learning.pipe import PipeClosed, receive, send

ATTEMPTS = 3  # deaths in a row at the same job before it is given up
PAUSE_SECONDS = 0.5  # before another process is started in place of a dead one
CODE = Path(__file__).parents[2]

log = logging.getLogger(__name__)


class TrainingGivenUp(RuntimeError):  # noqa: N818 - says what became of the job
    """The training process died at the same job again and again."""


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
        self, device: str, on_death: Callable[[], None], python: str = sys.executable
    ) -> None:
        self._command = (python, "-P", "-m", "service.learning.training_process", device)
        self._on_death = on_death
        self._child: _Child | None = None
        self._closing = threading.Event()
        self._starting = threading.Lock()  # no process is started while or after one is killed
        self._working = threading.Lock()

    def train(self, job: TrainingJob) -> Outcome:
        """What comes of an encoder update."""
        return outcome_of(self._done(training_message(job)), job)

    def judge(self, job: JudgingJob) -> Judgement:
        """What is to be said of an encoder's transfer."""
        return judgement_of(self._done(judging_message(job)))

    def close(self) -> None:
        """Kill the process, in the middle of a job too."""
        with self._starting:
            self._closing.set()
            if self._child is not None:
                self._child.process.kill()
        with self._working:  # whoever waits for an answer has noticed
            if self._child is not None:
                self._child.bury()
                self._child = None

    def _done(self, message: Message) -> Message:
        with self._working:
            for _ in range(ATTEMPTS):
                child = self._living()
                try:
                    send(child.jobs, message)
                    return receive(child.answers)
                except PipeClosed:
                    self._mourn(child)
        raise TrainingGivenUp(TrainingGivenUp.__doc__)

    def _living(self) -> _Child:
        with self._starting:
            if self._closing.is_set():
                raise TrainingGivenUp("training has ended")
            if self._child is None:
                self._child = _started(self._command)
            return self._child

    def _mourn(self, child: _Child) -> None:
        """Tell of the death, unless it was us."""
        code = child.bury()
        self._child = None
        if self._closing.is_set():
            raise TrainingGivenUp("training has ended")
        self._on_death()
        details = {"action": "training_process_died", "process_id": child.process.pid, "code": code}
        log.error("the training process died", extra=details)
        self._closing.wait(PAUSE_SECONDS)


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
