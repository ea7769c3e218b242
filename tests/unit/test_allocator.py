"""How many arenas the C library keeps for the threads of a process."""

import os
import subprocess
import sys

import pytest

THREADS = 6
# Each thread holds something that is too large for Python's own pools and too small for a mapping.
SCRIPT = f"""
import ctypes, sys, threading
from service.allocator import share_arenas

if "shared" in sys.argv:
    share_arenas()
held, all_there = [], threading.Barrier({THREADS})

def hold():
    held.append(bytearray(50_000))
    all_there.wait()

threads = [threading.Thread(target=hold) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""


def arenas(*arguments: str, **environment: str) -> int:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    given = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    told = subprocess.run(command, env=given | environment, capture_output=True, check=True).stdout
    return told.count(b"<heap nr=")


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's arenas")
def test_threads_share_two_arenas():
    assert arenas() > 2, "each has its own, otherwise"
    assert arenas("shared") == 2


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's arenas")
def test_who_sets_the_number_is_obeyed():
    assert arenas("shared", MALLOC_ARENA_MAX="3") == 3
