"""Files that appear whole or not at all, and are still there after a crash of the machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def durable_file(path: Path) -> Iterator[Path]:
    """A temporary file beside `path` to write; on success it becomes `path`, otherwise it is removed."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield partial
        flush_to_disk(partial)
        partial.replace(path)
        flush_to_disk(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def flush_to_disk(path: Path) -> None:
    """The content of a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
