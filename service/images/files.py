"""Images in a folder or a zip archive, in the order of their names.

Nothing of an archive is ever written under a name of its own, and what its directory claims is checked
before an entry is read.
"""

import stat
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

import numpy as np

from model import Floats
from service.images.decoding import MAX_IMAGE_BYTES, decoded_image
from service.images.schema import ImageError, ImageSchema
from service.limits import MEBIBYTE
from service.unpacking import MAX_DIRECTORY_BYTES, MAX_UNPACKED_BYTES

SUFFIXES = (".png", ".jpg", ".jpeg")
ARCHIVE = ".zip"
MAX_ENTRIES = 65_535  # more need the zip64 extension
_END = b"PK\x05\x06"  # of the end record, which an archive's comment may follow
_END_BYTES, _MAX_COMMENT = 22, 65_535
_UNSET = 0xFFFFFFFF  # a size that only zip64 could state
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_LEFT_BEHIND = (("Thumbs.db",), ("desktop.ini",))  # by Windows

NamedImage = tuple[str, bytes]


class ImageFileError(ImageError):
    """A file of a folder or an archive is no good; `name` says which, if it is one of them."""

    def __init__(self, detail: str, name: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.name = name

    def __str__(self) -> str:
        return self.detail if self.name is None else f"{self.name}: {self.detail}"


def is_images(path: Path) -> bool:
    """Whether a path is one of images: a folder, a zip archive or one image, by its name."""
    return path.is_dir() or path.suffix.lower() in (*SUFFIXES, ARCHIVE)


def images_in(path: Path) -> Iterator[NamedImage]:
    """The images of a folder, of a zip archive, or of one file."""
    if path.is_dir():
        yield from _in_folder(path)
    elif path.suffix.lower() == ARCHIVE:
        with path.open("rb") as file:
            yield from images_in_zip(file)
    else:
        yield path.name, read_image(path)


def decoded_images(
    schema: ImageSchema, path: Path, count: int
) -> Iterator[tuple[list[str], Floats]]:
    """Names and numbers of the images of a path, so many at a time; an error names the image."""
    files = images_in(path)
    while some := list(islice(files, count)):
        rows = np.empty((len(some), *schema.shape), dtype=np.float32)
        for row, (name, content) in enumerate(some):
            try:
                rows[row] = decoded_image(schema, content)
            except ImageError as error:
                raise ImageFileError(str(error), name) from None
        yield [name for name, _ in some], rows


def images_in_zip(file: IO[bytes]) -> Iterator[NamedImage]:
    """The images of a zip archive, each of bounded size."""
    with opened_archive(file) as (archive, entries):
        for name, entry in entries.items():
            yield name, unpacked(archive, entry)


@contextmanager
def opened_archive(
    file: IO[bytes], others: Sequence[str] = ()
) -> Iterator[tuple[zipfile.ZipFile, dict[str, zipfile.ZipInfo]]]:
    """A zip archive and its entries by name: images, and files whose names end in `others`."""
    _check_directory(file)
    with ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(file))
            entries = _checked_entries(archive, others)
        except ImageFileError:
            raise
        except Exception:  # noqa: BLE001 - zipfile raises many kinds for damaged archives
            raise ImageFileError("The file is no zip archive, or it is damaged.") from None
        yield archive, {each.filename: each for each in entries}


def _in_folder(folder: Path) -> Iterator[NamedImage]:
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    files = {name: path for name, path in paths.items() if path.is_file() and not is_hidden(name)}
    if not files:
        raise ImageFileError(f"{folder} has no image.")
    for name in sorted(files):
        check_name(name)
        yield name, read_image(files[name])


def read_image(path: Path) -> bytes:
    """The bytes of an image file, as far as they may be decoded."""
    with path.open("rb") as file:
        return file.read(MAX_IMAGE_BYTES + 1)  # one too many is refused when it is decoded


def is_hidden(name: str) -> bool:
    """Whether a file is one of those that systems leave behind: `.DS_Store`, `Thumbs.db`."""
    parts = PurePosixPath(name).parts
    return parts[-1:] in _LEFT_BEHIND or any(each.startswith((".", "__MACOSX")) for each in parts)


def check_name(name: str) -> None:
    """Refuse a name that is not one of an image."""
    if PurePosixPath(name).suffix.lower() not in SUFFIXES:
        raise ImageFileError(f"Expected the name of an image: {', '.join(SUFFIXES)}.", name)


def _check_directory(file: IO[bytes]) -> None:
    """Refuse a directory that is too large to be read into memory."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _END_BYTES - _MAX_COMMENT))
    tail = file.read()
    start = tail.rfind(_END)
    if start < 0 or len(tail) - start < _END_BYTES:
        raise ImageFileError("The file is no zip archive, or it is damaged.")
    entries = int.from_bytes(tail[start + 10 : start + 12], "little")
    directory = int.from_bytes(tail[start + 12 : start + 16], "little")
    if entries == MAX_ENTRIES or directory == _UNSET:
        raise ImageFileError(f"A zip archive has fewer than {MAX_ENTRIES} entries: send parts.")
    if directory > MAX_DIRECTORY_BYTES:
        raise ImageFileError(
            f"The directory of a zip archive has at most {MAX_DIRECTORY_BYTES // MEBIBYTE} MiB: send parts."
        )
    file.seek(0)


def _checked_entries(archive: zipfile.ZipFile, others: Sequence[str]) -> list[zipfile.ZipInfo]:
    found = archive.infolist()
    if len(found) >= MAX_ENTRIES:
        raise ImageFileError(f"A zip archive has fewer than {MAX_ENTRIES} entries: send parts.")
    for entry in found:
        _check_path(entry)
    entries = [each for each in found if not each.is_dir() and not is_hidden(each.filename)]
    if not entries:
        raise ImageFileError("The zip archive has no image.")
    for entry in entries:
        _check_entry(entry, others)
    if sum(each.file_size for each in entries) > MAX_UNPACKED_BYTES:
        raise ImageFileError(
            f"A zip archive has at most {MAX_UNPACKED_BYTES >> 30} GiB unpacked: send parts."
        )
    names = [each.filename for each in entries]
    if len(set(names)) < len(names):
        raise ImageFileError("A zip archive has each name once.")
    return sorted(entries, key=lambda each: each.filename)


def _check_path(entry: zipfile.ZipInfo) -> None:
    path = PureWindowsPath(entry.filename)  # which knows both slashes, and drives
    if path.anchor or ".." in path.parts or stat.S_ISLNK(entry.external_attr >> 16):
        raise ImageFileError("An entry must lie inside the archive.", entry.filename)


def _check_entry(entry: zipfile.ZipInfo, others: Sequence[str]) -> None:
    is_image = not entry.filename.endswith(tuple(others))
    if is_image:
        check_name(entry.filename)
    if entry.flag_bits & _ENCRYPTED:
        raise ImageFileError("An entry may not be encrypted.", entry.filename)
    if entry.compress_type not in _METHODS:
        raise ImageFileError("An entry is stored or deflated.", entry.filename)
    if is_image and entry.file_size > MAX_IMAGE_BYTES:
        detail = f"An image has at most {MAX_IMAGE_BYTES >> 20} MiB."
        raise ImageFileError(detail, entry.filename)


def unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The bytes of an entry."""
    try:
        with archive.open(entry) as file:
            # No more than the directory claims is unpacked, whatever the entry holds.
            return file.read(entry.file_size)
    except Exception:  # noqa: BLE001 - as above
        raise ImageFileError("The entry is damaged.", entry.filename) from None
