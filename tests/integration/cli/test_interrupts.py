"""Ctrl-C ends a command at once, also while a thread computes."""

import signal
import subprocess
import sys

import pytest

from tests.support.processes.service import ROOT, clean_environment
from tests.support.waiting import PATIENCE_SECONDS

# The work of `evaluate` and `replay`: the event loop waits for a thread, which here never ends.
BUSY = """
import asyncio, signal, threading
from service.cli.local import run

# As at a keyboard: a job in the background inherits that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def compute():
    print("computing", flush=True)
    threading.Event().wait()

async def work():
    try:
        await asyncio.to_thread(compute)
    finally:
        print("closed", flush=True)

run(work())
"""


@pytest.mark.timeout(2 * PATIENCE_SECONDS)
def test_a_command_that_computes_in_a_thread_ends_at_once():
    with subprocess.Popen(
        [sys.executable, "-c", BUSY],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "computing\n"
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, printed, said) == (130, "closed\n", "stopped\n")
