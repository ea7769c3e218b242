"""Temporary files without a name: nothing remains of them when the process ends, however it ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO

DESCRIPTORS = Path("/proc/self/fd")


@contextmanager
def unnamed_file() -> Iterator[tuple[IO[bytes], Path]]:
    """A file to write, and a path under which this process opens it again, from its beginning.

    Without /proc, which is on other systems than Linux, the file has a name.
    """
    with TemporaryFile() if DESCRIPTORS.is_dir() else NamedTemporaryFile() as file:
        yield file, _path(file)


def _path(file: IO[bytes]) -> Path:
    return DESCRIPTORS / str(file.fileno()) if DESCRIPTORS.is_dir() else Path(file.name)
