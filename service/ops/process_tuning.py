"""The C library's memory: what was freed is given back, or found by the next thread that needs some.

glibc gives every thread an arena of its own, up to eight a core, and each keeps the most that was
ever in use in it. Work that goes from thread to thread, as folding and publishing do, makes a process
grow for an hour, until each thread has once held the most that any of them ever holds. Large arrays
are mapped by themselves and given back at once, but only until the first of them is freed: then
glibc takes blocks of that size from the arenas, too, which they leave in pieces, and where the last
piece is freed it may go back. Who lives long wants the one, who is waited for the other.
"""

import ctypes
import gc
import os

ARENAS = 2  # one beside the main thread's: the interpreter's lock leaves little to contend for
MAPPED_BYTES = 256 << 10  # from here on a trainer's block is mapped by itself
KEPT_BYTES = 32 << 20  # up to here a server's are not: glibc's limit
# Parameters of glibc's malloc.h, and the variables by which whoever knows better sets them.
_ARENA_MAX = -8, "MALLOC_ARENA_MAX"
_MMAP_THRESHOLD = -3, "MALLOC_MMAP_THRESHOLD_"
_TRIM_THRESHOLD = -1, "MALLOC_TRIM_THRESHOLD_"


def share_arenas() -> None:
    """Have all threads that are started from now on share what there is."""
    _set(_ARENA_MAX, ARENAS)


def map_large_blocks() -> None:
    """Have large blocks given back when they are freed: for trainers, which live long and are not waited for."""
    _set(_MMAP_THRESHOLD, MAPPED_BYTES)


def keep_large_blocks() -> None:
    """Have large blocks used again: for servers.

    What is mapped anew is cleared page by page, which makes scoring a batch half as dear again.
    """
    _set(_MMAP_THRESHOLD, KEPT_BYTES)
    _set(_TRIM_THRESHOLD, 2 * KEPT_BYTES)


def give_back() -> None:
    """Give the system what is free of the arenas: the pages between what is in use, too.

    It takes milliseconds, and what is given back is cleared when it is needed again.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _set(parameter: tuple[int, str], value: int) -> None:
    number, variable = parameter
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # another C library has nothing to set
    if mallopt is not None and variable not in os.environ:
        mallopt(number, value)


def leave_the_past_alone() -> None:
    """Take what start-up made out of the collector's view; to be called once, before the work begins.

    Torch and the rest are some hundred thousand objects that stay. To look through them all took
    200 ms each time, with every request waiting; and it was done only when garbage had come to a
    quarter of them, which is megabytes in a process that makes little of it.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # counts what is left: a quarter of that is when it will look again
