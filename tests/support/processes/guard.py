"""Ends what a test run has started when the run itself is killed and cannot do so.

A process of its own waits for the end of the run, which it notices at its standard input, and
then kills the processes that it was given. Run as `python -m tests.support.processes.guard`.
"""

import atexit
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[3]


def watch(process_id: int) -> None:
    """Have this process and all that it starts ended with the test run."""
    received = _guard().stdin
    assert received is not None
    received.write(f"{process_id}\n".encode())
    received.flush()


@cache
def _guard() -> "subprocess.Popen[bytes]":
    # A session of its own: what is meant for the test run must not hit its guard.
    command = [sys.executable, "-m", "tests.support.processes.guard"]
    guard = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(guard.communicate)  # a run that ends in order takes it along
    return guard


def main() -> None:
    """Remember until the input ends, then kill."""
    watched = []
    for line in sys.stdin:
        # psutil knows a process by its time of birth, too: the number may be another's by then.
        with suppress(psutil.NoSuchProcess):
            watched.append(psutil.Process(int(line)))
    for process in watched:
        with suppress(psutil.NoSuchProcess):
            for each in (process, *process.children(recursive=True)):
                each.kill()


if __name__ == "__main__":
    main()
