"""The training process: reads jobs from its standard input and answers them one by one.

`process_runner` runs it as `python -m service.learning.jobs.training_process DEVICE MEMORY ANSWERS`: MEMORY is
its limit in bytes, ANSWERS a file descriptor. It ends when its standard input closes, even during a job,
so that it never outlives its parent.
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

NICENESS = 10  # serving has priority
STATUS = Path("/proc/self/status")

log = logging.getLogger(__name__)


def main(device: str, memory_bytes: int, answers: int) -> None:
    """Answer jobs until the standard input closes."""
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
    after_each: Callable[[], None] = give_back,  # the next job may be far away
) -> None:
    """Answer jobs one by one."""
    recordings = Recordings()
    for job in jobs:
        send(pipe, _answer(job, device, recordings))
        after_each()


def limit_memory(more_bytes: int) -> None:
    """Limit the memory that this process may allocate in addition; larger allocations fail.

    Linux counts private writable memory, which numpy and torch allocate. Other systems have no limit.
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
    except Exception as error:  # any error is reported to the parent
        log.exception("a job failed", extra={"action": "training_failed"})
        return Message({"failed": failure_reason(error)}, {})


def _prepare() -> None:
    # Signals to the process group are for the parent, which ends this process itself.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    if hasattr(os, "SCHED_BATCH"):  # Linux: do not preempt other processes on wake-up
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.nice(NICENESS)
    logs.configure("info")
    sys.excepthook = _log_failure


def _listen(pipe: IO[bytes], jobs: "SimpleQueue[Message]") -> None:
    """Queue received jobs, and end the process when the pipe closes."""
    try:
        while True:
            jobs.put(receive(pipe))
    except PipeClosed:
        os._exit(0)
    except MemoryError:
        log.critical("a job does not fit into memory", extra={"action": "training_failed"})
        os._exit(1)


def _log_failure(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Log an uncaught error as JSON; a plain traceback would quote values."""
    if not issubclass(kind, PipeClosed):
        log.critical(
            "a job failed", extra={"action": "training_failed"}, exc_info=(kind, error, trace)
        )
    # Exit at once: a normal exit would abort, because the listening thread holds the standard input.
    sys.stdout.flush()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
