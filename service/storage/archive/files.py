"""The files of archived rounds, in a folder or in a store that fsspec reaches; none is ever changed."""

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from service.errors import DamagedArchive
from service.ops.durable_files import durable_file, flush_to_disk

PIECE_BYTES = 1 << 20  # of a file that is only checked


class ArchivingError(Exception):
    """Why nothing is moved now."""


@dataclass(frozen=True, slots=True)
class ArchiveFiles:
    """Files by `EXPERIMENT/NAME`, below a folder or a URL."""

    place: str

    def read(self, name: str, sha256: str) -> bytes:
        """The bytes of a file; raises `DamagedArchive` if they are not those of this hash."""
        store, path = self._at(name)
        with _reading(name):
            content: bytes = store.cat_file(path)
        _compare(name, hashlib.sha256(content).hexdigest(), sha256)
        return content

    def check(self, name: str, sha256: str) -> None:
        """Read a file piece by piece; raises `DamagedArchive` if its bytes are not those of this hash."""
        store, path = self._at(name)
        found = hashlib.sha256()
        with _reading(name), store.open(path, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                found.update(piece)
        _compare(name, found.hexdigest(), sha256)

    def write(self, name: str, content: bytes) -> None:
        """Write a file; in a folder it has its name only once all of it is on the disk."""
        store, path = self._at(name)
        try:
            if isinstance(store, LocalFileSystem):
                _write_durably(Path(path), content)
            else:
                store.pipe_file(path, content)
        except Exception as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ArchivingError(f"the file {name} cannot be written: {reason}") from error

    def has(self, name: str, size: int) -> bool:
        """Whether there is a file of this name and size."""
        store, path = self._at(name)
        store.invalidate_cache()
        try:
            return bool(store.size(path) == size)
        except FileNotFoundError:
            return False

    def names(self, experiment_id: str) -> list[str]:
        """The files of an experiment."""
        store, path = self._at(experiment_id)
        store.invalidate_cache()
        try:
            found = store.ls(path, detail=False)
        except FileNotFoundError:
            return []
        return [f"{experiment_id}/{each.rpartition('/')[2]}" for each in found]

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        store, path = self._at(name)
        with suppress(FileNotFoundError):
            store.rm_file(path)

    def empty(self, experiment_id: str) -> None:
        """Remove the files of an experiment; raises `DamagedArchive` if its folder is not there."""
        store, path = self._at(experiment_id)
        if isinstance(store, LocalFileSystem) and not Path(path).is_dir():
            raise DamagedArchive(f"There is no folder {path} of archived rounds.")
        for name in self.names(experiment_id):
            self.remove(name)

    def remove_all(self, experiment_id: str) -> None:
        """Remove all that is of an experiment."""
        store, path = self._at(experiment_id)
        with suppress(FileNotFoundError):
            store.rm(path, recursive=True)

    @contextmanager
    def alone(self, experiment_id: str) -> Iterator[None]:
        """One process at a time moves rounds of a log, where the folder's file system has locks.

        Elsewhere the second one finds that the manifest has moved on, and stops.
        """
        store, path = self._at(experiment_id)
        if not isinstance(store, LocalFileSystem):
            yield
            return
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ArchivingError("another process archives this log") from None
            yield

    def _at(self, name: str) -> tuple[Any, str]:
        """The store, which fsspec keeps, and the place of a file in it."""
        try:
            store, root = url_to_fs(self.place)
        except (ImportError, ValueError) as error:
            raise DamagedArchive(f"DABAND_ARCHIVE_DIR cannot be used: {error}") from error
        return store, f"{root.rstrip('/')}/{name}"


@contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - every store has errors of its own
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise DamagedArchive(f"The archived file {name} cannot be read: {reason}.") from None


def _compare(name: str, found: str, sha256: str) -> None:
    if found != sha256:
        raise DamagedArchive(
            f"The archived file {name} has changed since it was written."
            " Bring it back from a copy of the archive."
        )


def _write_durably(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with durable_file(path) as partial:
        partial.write_bytes(content)
    flush_to_disk(path.parent.parent)  # the experiment's folder may be new
