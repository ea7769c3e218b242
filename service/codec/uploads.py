"""Streaming decoders of contexts: JSON lines, npy, plain float32 or the images of a form.

Each decoder is fed the bytes as they arrive and yields whole, validated contexts. It keeps about one
piece of the stream in memory.
"""

import math
from collections.abc import Iterator
from typing import IO, Any, Protocol

import numpy as np
from msgspec import Raw
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header

from model import Floats
from service.codec.bodies import MediaType, decode, nested
from service.codec.contexts import (
    NpyHeader,
    checked_batch,
    decoded,
    escaped,
    image_of,
    npy_header,
)
from service.columns.schema import TableError
from service.errors import InvalidRequest, refuse, refuse_numbers
from service.experiment_spec import ExperimentSpec
from service.images.decoding import MAX_IMAGE_BYTES
from service.images.files import ImageFileError, images_in_zip
from service.limits import MEBIBYTE
from service.records import CONTEXT_TYPE
from service.unpacking import MAX_LINE_BYTES

MAX_HEADER_BYTES = 64 << 10
LINES_AT_ONCE = 256
NUMBER_BYTES = 32  # of a number as text, with its comma


class ContextDecoder(Protocol):
    """Decodes the bytes of a stream into contexts (n, *shape)."""

    def feed(self, piece: bytes) -> Iterator[Floats]:
        """The contexts that are complete now."""

    def finish(self) -> Iterator[Floats]:
        """The last contexts; refuses a stream that ends in the middle of one."""


def decoder_for(media: MediaType, spec: ExperimentSpec, header: str = "") -> ContextDecoder:
    """The decoder of a media type; `header` is the Content-Type, which has the boundary of a form."""
    if media is MediaType.FORM:
        return FormImages(spec, header)
    if media is MediaType.JSON_LINES:
        return JsonLines(spec)
    if media is MediaType.NPY:
        return NpyRows(spec.context_shape)
    return PlainRows(spec.context_shape)


def zipped_contexts(spec: ExperimentSpec, file: IO[bytes]) -> Iterator[Floats]:
    """The images of a zip archive, in the order of their names."""
    try:
        for name, content in images_in_zip(file):
            yield image_of(spec, content, f"#/{escaped(name)}")[None]
    except ImageFileError as error:
        refuse(error.detail, "#" if error.name is None else f"#/{escaped(error.name)}")


class PlainRows:
    """Numbers of one type, row after row."""

    def __init__(self, shape: tuple[int, ...], kind: np.dtype[Any] = CONTEXT_TYPE) -> None:
        self._shape = shape
        self._kind = kind
        self._size = math.prod(shape) * kind.itemsize
        self._rest = b""
        self.rows = 0

    def feed(self, piece: bytes) -> Iterator[Floats]:
        """All whole rows."""
        content = self._rest + piece
        count = len(content) // self._size
        self._rest = content[count * self._size :]
        if count:
            values = np.frombuffer(content[: count * self._size], dtype=self._kind)
            with np.errstate(over="ignore"):
                array = values.reshape(count, *self._shape).astype(np.float32)
            self.rows += count
            yield checked_batch(array, self._shape, f"#/{self.rows - count}")

    def finish(self) -> Iterator[Floats]:
        """No contexts; refuses an incomplete row."""
        if self._rest:
            refuse("The body ends in the middle of a context.", f"#/{self.rows}")
        yield from ()


class NpyRows:
    """An npy file of floating-point numbers, (n, *shape), in C order."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._start = b""
        self._rows: PlainRows | None = None
        self._expected = 0

    def feed(self, piece: bytes) -> Iterator[Floats]:
        """Rows, once the header has been read."""
        if self._rows is not None:
            yield from self._rows.feed(piece)
            return
        self._start += piece
        header = self._header()
        if header is not None:
            self._expected = header.shape[0]
            self._rows = PlainRows(self._shape, header.kind)
            rest, self._start = self._start[header.size_bytes :], b""
            yield from self._rows.feed(rest)

    def finish(self) -> Iterator[Floats]:
        """No contexts; refuses a file with fewer or more rows than its header says."""
        if self._rows is None:
            refuse("The body is not an npy file.")
        yield from self._rows.finish()
        if self._rows.rows != self._expected:
            refuse("The number of contexts does not match the npy file's header.")

    def _header(self) -> NpyHeader | None:
        try:
            header = npy_header(self._start)
        except InvalidRequest:
            # The header may be incomplete so far.
            if len(self._start) > MAX_HEADER_BYTES:
                raise
            return None
        is_fitting = len(header.shape) > 1 and header.shape[1:] == self._shape
        if not is_fitting or header.is_fortran or header.kind.kind != "f":
            refuse(f"Expected floating-point numbers of shape [n, *{list(self._shape)}], C order.")
        return header


class JsonLines:
    """One context per line: an array of numbers, or a row of the columns; empty lines are skipped."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self._spec = spec
        self._shape = spec.context_shape
        self._rest = bytearray()
        self._numbers = math.prod(self._shape)
        images = 0 if spec.image is None else 2 * MAX_IMAGE_BYTES
        self._most = max(MAX_LINE_BYTES, images, NUMBER_BYTES * self._numbers)
        self._number = 0  # lines seen so far

    def feed(self, piece: bytes) -> Iterator[Floats]:
        """The contexts of all complete lines."""
        self._rest += piece
        lines: list[bytes] = []
        if b"\n" in piece:
            *lines, rest = bytes(self._rest).split(b"\n")
            self._rest = bytearray(rest)
        if len(self._rest) > self._most:
            refuse(
                f"A line has at most {self._most // MEBIBYTE} MiB: send fewer numbers in each.",
                f"#/{self._number + len(lines)}",
            )
        for start in range(0, len(lines), LINES_AT_ONCE):
            yield from self._decoded(lines[start : start + LINES_AT_ONCE])

    def finish(self) -> Iterator[Floats]:
        """The context of the last line, which needs no line end."""
        yield from self._decoded([bytes(self._rest)])
        self._rest.clear()

    def _decoded(self, lines: list[bytes]) -> Iterator[Floats]:
        start = self._number
        self._number += len(lines)
        full = [line.strip() for line in lines if line.strip()]
        if not full:
            return
        if self._spec.takes_objects:
            yield from self._objects(lines, full, start)
            return
        # Numbers take many times the memory of their text: too many are not decoded.
        if any(line.count(b",") >= self._numbers for line in full):
            refuse_numbers(self._shape, f"#/{start}")
        # All lines in one call: a call costs as much as decoding a line.
        is_each_whole = all(line[:1] == b"[" and line[-1:] == b"]" for line in full)
        try:
            rows = decode(b"[" + b",".join(full) + b"]", nested(float, len(self._shape) + 1))
            if not is_each_whole or len(rows) != len(full):
                refuse("A line is not an array of numbers.")
            yield checked_batch(rows, self._shape, "#")
        except InvalidRequest:
            self._refuse_line(lines, start)

    def _objects(self, lines: list[bytes], full: list[bytes], start: int) -> Iterator[Floats]:
        if self._spec.row_plan is not None:
            try:
                rows = self._spec.row_plan.lines(full)
            except TableError:
                pass  # the line that does not fit is named below, and lines may be numbers
            else:
                yield rows
                return
        for index, line in enumerate(lines):
            if line.strip():
                pointer = f"#/{start + index}"
                raw = decode(line, Raw, pointer=pointer)
                yield decoded(self._spec, raw, MediaType.JSON, pointer)[None]

    def _refuse_line(self, lines: list[bytes], start: int) -> None:
        """Refuse the first invalid line by its number."""
        for index, line in enumerate(lines):
            if line.strip():
                decoded(self._spec, Raw(line), MediaType.JSON, f"#/{start + index}")
        refuse("A line is not an array of numbers.", f"#/{start}")


class FormImages:
    """The images of an HTML form, in the order of its files, whatever their names."""

    def __init__(self, spec: ExperimentSpec, header: str) -> None:
        self._spec = spec
        boundary = parse_options_header(header)[1].get(b"boundary")
        if not boundary:
            refuse("The Content-Type of a form names its boundary.")
        self._parser = MultipartParser(
            boundary, {"on_part_data": self._add, "on_part_end": self._end_part}
        )
        self._part = bytearray()
        self._files: list[bytes] = []
        self._count = 0

    def feed(self, piece: bytes) -> Iterator[Floats]:
        """The images that are complete now."""
        try:
            self._parser.write(piece)
        except MultipartParseError:
            refuse("The form is malformed.", f"#/{self._count}")
        files, self._files = self._files, []
        for content in files:
            self._count += 1
            yield image_of(self._spec, content, f"#/{self._count - 1}")[None]

    def finish(self) -> Iterator[Floats]:
        """No images; refuses an incomplete form."""
        if self._parser.state is not MultipartState.END:
            refuse("The form ends before its last boundary.", f"#/{self._count}")
        yield from ()

    def _add(self, data: bytes, start: int, end: int) -> None:
        self._part += data[start:end]
        if len(self._part) > MAX_IMAGE_BYTES:
            # Before the rest of it is in memory.
            place = self._count + len(self._files)
            refuse(f"An image has at most {MAX_IMAGE_BYTES >> 20} MiB.", f"#/{place}")

    def _end_part(self) -> None:
        self._files.append(bytes(self._part))
        self._part.clear()
