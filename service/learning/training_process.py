"""The process that trains: takes jobs at its standard input and answers them, one by one.

Run by `service.learning.process_runner` as `python -m service.learning.training_process DEVICE ANSWERS`, the second
being a file descriptor. It lives as long as its standard input: when the process that started it
is gone, however that ended, so is this one, in the middle of a job too.
"""

import logging
import os
import signal
import sys
import threading
from queue import SimpleQueue
from types import TracebackType
from typing import IO

from model.job_codec import Message, answered
from service import logs
from service.allocator import give_back
from service.learning.pipe import PipeClosed, receive, send

NICENESS = 10  # serving goes first wherever both want a core

log = logging.getLogger(__name__)


def main(device: str, answers: int) -> None:
    """Answer jobs until nobody asks any more."""
    _prepare()
    jobs: SimpleQueue[Message] = SimpleQueue()
    listening = threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True)
    with open(answers, "wb") as pipe:
        listening.start()
        while True:
            send(pipe, answered(jobs.get(), device))
            give_back()  # the next job is far away


def _prepare() -> None:
    # Sent to all processes of a service they are meant for the parent, which ends this one itself.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "SCHED_BATCH"):  # Linux: do not preempt others when it wakes up
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(NICENESS)
    logs.configure("info")
    sys.excepthook = _log_failure


def _listen(pipe: IO[bytes], jobs: "SimpleQueue[Message]") -> None:
    """Hand on what comes, and end the process when nothing can come any more."""
    try:
        while True:
            jobs.put(receive(pipe))
    except PipeClosed:
        os._exit(0)


def _log_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A line like all others: a plain traceback would quote values."""
    if not issubclass(kind, PipeClosed):
        log.critical(
            "a job failed", extra={"action": "training_failed"}, exc_info=(kind, error, trace)
        )
    # At once: the listening thread holds the standard input, at which the interpreter's end aborts.
    sys.stdout.flush()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
