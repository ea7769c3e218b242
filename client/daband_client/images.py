"""Images as callers have them: files, folders of files, bytes of a file, or images of pillow."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from daband_client.errors import ContextError

SUFFIXES = (".png", ".jpg", ".jpeg")
ARCHIVE = ".zip"
FIRST_BYTES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
FIELD = "image"


class Image:
    """An image to send; its file is read when its request is made."""

    def __init__(self, given: Any) -> None:
        self.given = given

    def body(self) -> dict[str, bytes]:
        """As the service reads it."""
        return {FIELD: content(self.given)}


def is_image(given: Any) -> bool:
    """Whether this is one image: a path, the bytes of a PNG or JPEG file, or an image of pillow."""
    if isinstance(given, bytes | bytearray):
        return given.startswith(FIRST_BYTES)
    return isinstance(given, Path) or _is_of_pillow(given)


def is_image_body(given: Mapping[Any, Any]) -> bool:
    """Whether a mapping is an image as the service reads it, `{"image": …}`."""
    return set(given) == {FIELD} and (isinstance(given[FIELD], str) or is_image(given[FIELD]))


def image_count(context: Any) -> int:
    """How many images a context brings, one for each arm maybe."""
    if isinstance(context, Image):
        return 1
    if isinstance(context, Mapping):
        return 1 if is_image_body(context) else sum(map(image_count, context.values()))
    return int(is_image(context))


def content(given: Any) -> bytes:
    """The bytes of one image file; an image of pillow is written as PNG, as its pixels lie."""
    if isinstance(given, bytes | bytearray):
        return bytes(given)
    if not isinstance(given, Path):
        stream = BytesIO()
        given.save(stream, "PNG")
        return stream.getvalue()
    if given.suffix.lower() not in SUFFIXES:
        raise ContextError(f"{given} is no image: its name ends in one of {', '.join(SUFFIXES)}")
    return read(given)


def read(path: Path) -> bytes:
    """The bytes of a file."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ContextError(f"{path}: {error.strerror}") from error


def files(path: Path) -> list[Path]:
    """The images of a folder in the order of their names, or one file; hidden files are left out."""
    if path.suffix.lower() == ARCHIVE:
        raise ContextError(f"{path}: a zip archive can be uploaded, but not asked about")
    if not path.is_dir():
        return [path]
    found = {each.relative_to(path).as_posix(): each for each in path.rglob("*") if each.is_file()}
    shown = [name for name in found if not any(part[:1] == "." for part in name.split("/"))]
    if not shown:
        raise ContextError(f"{path} has no image")
    return [found[name] for name in sorted(shown)]


def _is_of_pillow(given: Any) -> bool:
    """Known by its methods: the client does without pillow."""
    return callable(getattr(given, "getbands", None)) and callable(getattr(given, "save", None))
