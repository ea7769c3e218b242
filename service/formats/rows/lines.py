"""Lines of a file, each of bounded length."""

from collections.abc import Iterator
from typing import Any

from service.limits import MEBIBYTE
from service.unpacking import MAX_LINE_BYTES

_PIECE_BYTES = 1 << 20


class LineTooLongError(ValueError):
    """A line is longer than a line may be; the rest of the file is not read."""

    def __init__(self, most: int) -> None:
        super().__init__(f"A line has at most {most // MEBIBYTE} MiB: send less in each line.")


def lines_of(stream: Any, most: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """The lines of a stream of bytes without their ends; the last one needs none."""
    rest = bytearray()
    while piece := stream.read(_PIECE_BYTES):
        if b"\n" in piece:
            *lines, tail = (bytes(rest) + piece).split(b"\n")
            yield from lines
            rest = bytearray(tail)
        else:
            rest += piece
        if len(rest) > most:
            raise LineTooLongError(most)
    if rest:
        yield bytes(rest)
