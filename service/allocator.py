"""The C library's memory: few arenas, so that what one thread gave back another one takes.

glibc gives every thread an arena of its own, up to eight a core, and each keeps the most that was
ever in use in it. Work that goes from thread to thread, as folding and publishing do, makes a process
grow for hours, until each thread has once held the most that any of them ever holds.
"""

import ctypes
import os

ARENAS = 2  # one beside the main thread's: the interpreter's lock leaves little to contend for
VARIABLE = "MALLOC_ARENA_MAX"  # glibc's own name for it: whoever sets it knows better
_M_ARENA_MAX = -8  # of glibc's malloc.h


def share_arenas() -> None:
    """Have all threads that are started from now on share what there is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and VARIABLE not in os.environ:  # another C library has nothing to set
        mallopt(_M_ARENA_MAX, ARENAS)
