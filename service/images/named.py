"""Images by their names, in a folder or a zip archive: those that a table names."""

import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

from service.images.files import (
    ImageFileError,
    check_name,
    opened_archive,
    read_image,
    unpacked,
)
from service.unpacking import MAX_UNPACKED_BYTES


class NamedImages:
    """Reads images by name; together they are of bounded size, however often one is named."""

    def __init__(self, read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self._left = MAX_UNPACKED_BYTES

    @classmethod
    def of_folder(cls, folder: Path) -> "NamedImages":
        """The images below a folder."""

        def read(name: str) -> bytes | None:
            path = PurePosixPath(name)
            is_inside = not path.is_absolute() and ".." not in path.parts
            found = folder / path
            return read_image(found) if is_inside and found.is_file() else None

        return cls(read)

    def content(self, name: str) -> bytes:
        """The bytes of an image file; `ImageFileError` if there is none of this name."""
        check_name(name)
        found = self._read(name)
        if found is None:
            raise ImageFileError("There is no such file.", name)
        self._left -= len(found)
        if self._left < 0:
            raise ImageFileError(
                f"The images of a history have at most {MAX_UNPACKED_BYTES >> 30} GiB: send parts."
            )
        return found


@contextmanager
def images_beside_table(
    path: Path, suffixes: Sequence[str], unpacked_table: IO[bytes]
) -> Iterator[tuple[str, NamedImages]]:
    """The name of the one table of a zip archive, unpacked into a file, and the images that it may name."""
    with path.open("rb") as file, opened_archive(file, suffixes) as (archive, entries):
        tables = [each for each in entries if each.endswith(tuple(suffixes))]
        if len(tables) != 1:
            raise ImageFileError(
                f"The archive has {len(tables)} tables; expected one beside the images: "
                f"{', '.join(suffixes)}."
            )
        place = PurePosixPath(tables[0])

        def read(name: str) -> bytes | None:
            entry = entries.get(str(place.parent / name))
            return None if entry is None else unpacked(archive, entry)

        _unpack(archive, entries[tables[0]], unpacked_table)
        yield place.name, NamedImages(read)


def _unpack(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, to: IO[bytes]) -> None:
    try:
        with archive.open(entry) as source:
            shutil.copyfileobj(source, to)
    except (zipfile.BadZipFile, zlib.error, EOFError):
        raise ImageFileError("The entry is damaged.", entry.filename) from None
    to.flush()
