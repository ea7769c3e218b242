"""What the C library keeps of a process's memory."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import NamedTuple

from service.ops.process_tuning import ARENAS

THREADS, BLOCKS = 6, 8
# Each thread holds something that is too large for Python's own pools and too small for a mapping.
# Then one large block is freed and some are held.
SCRIPT = f"""
import ctypes, sys, threading
from service.ops.process_tuning import keep_large_blocks, map_large_blocks, share_arenas

if sys.argv[1] != "much":
    share_arenas()
    map_large_blocks() if sys.argv[1] == "little" else keep_large_blocks()
held, all_there = [], threading.Barrier({THREADS})

def hold():
    held.append(bytearray(50_000))
    all_there.wait()

threads = [threading.Thread(target=hold) for _ in range({THREADS})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
bytearray(1 << 20)
held += [bytearray(1 << 20) for _ in range(int(sys.argv[2]))]
libc = ctypes.CDLL(None)
libc.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(libc.fdopen(1, b"w"))
libc.malloc_info(0, out)
libc.fflush(out)
"""
MAPPED = re.compile(rb'<total type="mmap" count="(\d+)"')


class Kept(NamedTuple):
    arenas: int
    mappings: int


def kept(how: str, blocks: int = 0, environment: Mapping[str, str] = {}) -> Kept:
    """The memory of a process that holds `blocks` large blocks."""
    command = [sys.executable, "-c", SCRIPT, how, str(blocks)]
    given = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    received = subprocess.run(
        command, env={**given, **environment}, capture_output=True, check=True
    ).stdout
    return Kept(received.count(b"<heap nr="), int(MAPPED.findall(received)[-1]))


def test_threads_share_few_arenas():
    assert kept("much").arenas > ARENAS
    assert kept("little").arenas == ARENAS


def test_large_blocks_stay_apart_after_one_was_freed():
    for how, apart in (("much", 0), ("little", BLOCKS)):
        assert kept(how, BLOCKS).mappings - kept(how).mappings == apart


# What a thread frees is used by the next one; page faults tell of what is not.
SCORING = """
import resource, sys, threading
import numpy as np
from service.ops.process_tuning import keep_large_blocks, share_arenas

if sys.argv[1] == "kept":
    share_arenas()
    keep_large_blocks()

def score():
    for _ in range(20):
        [np.ones(400_000) for _ in range(3)]

def run():
    thread = threading.Thread(target=score)
    thread.start()
    thread.join()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

first = run()
print(run() - first)
"""


def faults(how: str) -> int:
    """Pages that had to be made anew for the large arrays of a thread."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", SCORING, how]
    return int(subprocess.run(command, env=given, capture_output=True, check=True).stdout)


def test_servers_use_large_blocks_again():
    assert 10 * faults("kept") < faults("much")


# Small blocks are freed while every tenth stays: nothing at the end of the heap can go.
PIECES = """
import psutil
from service.ops.process_tuning import give_back

def resident():
    return psutil.Process().memory_info().rss >> 20

give_back()
held = [bytearray(20_000) for _ in range(4_000)]
most = resident()
held = held[::10]
kept = resident()
give_back()
print(most - kept, kept - resident())
"""


def test_what_is_free_between_blocks_in_use_is_given_back():
    received = subprocess.run(
        [sys.executable, "-c", PIECES], capture_output=True, check=True
    ).stdout
    freed_at_once, given_back = map(int, received.split())
    assert freed_at_once < 10
    assert given_back > 30  # of 72


def test_numbers_of_the_environment_are_kept():
    given = {"MALLOC_ARENA_MAX": "3", "MALLOC_MMAP_THRESHOLD_": str(8 << 20)}
    few, many = kept("little", 0, given), kept("little", BLOCKS, given)
    assert (few.arenas, many.mappings) == (3, few.mappings)
