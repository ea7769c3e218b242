"""The process that trains: takes jobs at its standard input and answers them, one by one.

Run by `process_runner` as `python -m service.learning.jobs.training_process DEVICE MEMORY ANSWERS`: MEMORY
is its limit in bytes, ANSWERS a file descriptor. It lives as long as its standard input: when the
process that started it is gone, however that ended, so is this one, in the middle of a job too.
"""

import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import IO

from model import Message, Recordings, answered
from service.learning.jobs.job import failure_reason
from service.learning.jobs.pipe import PipeClosed, receive, send
from service.ops import logs
from service.ops.process_tuning import give_back

NICENESS = 10  # serving goes first wherever both want a core
STATUS = Path("/proc/self/status")

log = logging.getLogger(__name__)


def main(device: str, memory_bytes: int, answers: int) -> None:
    """Answer jobs until nobody asks any more."""
    _prepare()
    if device == "cpu":
        limit_memory(memory_bytes)
    jobs: SimpleQueue[Message] = SimpleQueue()
    listening = threading.Thread(target=_listen, args=(sys.stdin.buffer, jobs), daemon=True)
    with open(answers, "wb") as pipe:
        listening.start()
        answer_jobs(iter(jobs.get, None), pipe, device)


def answer_jobs(
    jobs: Iterable[Message],
    pipe: IO[bytes],
    device: str,
    after_each: Callable[[], None] = give_back,  # the next job is far away
) -> None:
    """Answer jobs one by one."""
    recordings = Recordings()
    for job in jobs:
        send(pipe, _answer(job, device, recordings))
        after_each()


def limit_memory(more_bytes: int) -> None:
    """Let this process allocate so much beyond what it has; an allocation beyond that fails.

    Linux counts what is private and writable, which is what numpy and torch allocate. Elsewhere
    nothing is limited.
    """
    if STATUS.exists():
        used = _data_bytes(STATUS.read_text()) + more_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (used, used))


def _data_bytes(status: str) -> int:
    (line,) = [line for line in status.splitlines() if line.startswith("VmData:")]
    return int(line.split()[1]) * 1024


def _answer(job: Message, device: str, recordings: Recordings) -> Message:
    try:
        return answered(job, device, recordings)
    except Exception as error:  # whatever it is, the parent is told and the service goes on
        log.exception("a job failed", extra={"action": "training_failed"})
        return Message({"failed": failure_reason(error)}, {})


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
    except MemoryError:
        log.critical("a job does not fit", extra={"action": "training_failed"})
        os._exit(1)


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
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
