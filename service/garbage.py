"""What the garbage collector looks through."""

import gc


def leave_the_past_alone() -> None:
    """Take what start-up made out of the collector's view; to be called once, before the work begins.

    Torch and the rest are some hundred thousand objects that stay. To look through them all took
    200 ms each time, with every request waiting; and it was done only when garbage had come to a
    quarter of them, which is megabytes in a process that makes little of it.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # counts what is left: a quarter of that is when it will look again
