"""The C library's memory: what was freed is given back, or found by the next thread that needs some.

glibc gives every thread an arena of its own, up to eight a core, and each keeps the most that was
ever in use in it. Work that goes from thread to thread, as folding and publishing do, makes a process
grow for an hour, until each thread has once held the most that any of them ever holds. Large arrays
are mapped by themselves and given back at once, but only until the first of them is freed: then
glibc takes blocks of that size from the arenas, too, which they leave in pieces.
"""

import ctypes
import os

ARENAS = 2  # one beside the main thread's: the interpreter's lock leaves little to contend for
MAPPED_BYTES = 256 << 10  # from here on a block is mapped by itself
# Parameters of glibc's malloc.h, the variables by which whoever knows better sets them, and values.
_SET = ((-8, "MALLOC_ARENA_MAX", ARENAS), (-3, "MALLOC_MMAP_THRESHOLD_", MAPPED_BYTES))


def keep_little() -> None:
    """Have all threads that are started from now on share what there is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return  # another C library, with nothing to set
    for parameter, variable, value in _SET:
        if variable not in os.environ:
            mallopt(parameter, value)
