"""A real disk that can be filled: a small tmpfs, which only root may mount."""

import errno
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PIECE = 1 << 16


class SmallDisk:
    """A mounted folder of limited size."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no byte free."""
        with self._filler.open("ab", buffering=0) as file:
            size = PIECE
            while size:
                try:
                    file.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    size //= 2

    def free(self) -> None:
        """Give back what `fill` took."""
        self._filler.unlink()


@contextmanager
def small_disk(size_bytes: int) -> Iterator[SmallDisk]:
    """Mount one meanwhile; the test is skipped, and says so, where that is not allowed."""
    folder = Path(tempfile.mkdtemp(prefix="daband-disk-"))
    folder.chmod(0o755)  # servers run as another user
    options = ["-t", "tmpfs", "-o", f"size={size_bytes},mode=1777", "tmpfs", str(folder)]
    mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip(f"a full disk needs a tmpfs, which cannot be mounted: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a process of the test may still be ending.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()
