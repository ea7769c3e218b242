"""Tuning of malloc and of the garbage collector.

glibc gives every thread its own arena, up to eight per core, and an arena rarely shrinks. Work that moves
between threads, such as folding and publishing, makes a process grow until every arena has reached its
maximum. Large blocks are mapped and returned to the system when freed. But after the first such free, glibc
raises its threshold and takes blocks of that size from the arenas, which fragments them. Long-lived
processes should return memory; request handlers should keep it.
"""

import ctypes
import gc
import os

ARENAS = 2  # one more than the main thread's: with the GIL there is little contention
MAPPED_BYTES = 256 << 10  # larger blocks of a trainer are mapped
KEPT_BYTES = 32 << 20  # smaller blocks of a server are not mapped: glibc's maximum
# Parameters of glibc's malloc.h, and the environment variables that override them.
_ARENA_MAX = -8, "MALLOC_ARENA_MAX"
_MMAP_THRESHOLD = -3, "MALLOC_MMAP_THRESHOLD_"
_TRIM_THRESHOLD = -1, "MALLOC_TRIM_THRESHOLD_"


def share_arenas() -> None:
    """Make all threads started from now on share two arenas."""
    _set(_ARENA_MAX, ARENAS)


def map_large_blocks() -> None:
    """Return large blocks to the system when they are freed: for trainers."""
    _set(_MMAP_THRESHOLD, MAPPED_BYTES)


def keep_large_blocks() -> None:
    """Reuse large blocks: for servers. Mapped pages are cleared again, which makes scoring 50 % slower."""
    _set(_MMAP_THRESHOLD, KEPT_BYTES)
    _set(_TRIM_THRESHOLD, 2 * KEPT_BYTES)


def give_back() -> None:
    """Return free pages of the arenas to the system, also between used blocks; it takes milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _set(parameter: tuple[int, str], value: int) -> None:
    number, variable = parameter
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # only glibc has it
    if mallopt is not None and variable not in os.environ:
        mallopt(number, value)


def freeze_gc() -> None:
    """Exclude all objects made at start-up from garbage collection; called once, before serving.

    Torch and other libraries keep some hundred thousand objects. A full collection over them blocks all
    requests for 200 ms, and the many objects delay collections until megabytes of garbage exist.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # resets the count of long-lived objects, which triggers full collections
