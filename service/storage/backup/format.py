"""The format of a backup: JSON lines in one gzip stream, chained by hashes.

The first line describes the tables. Then come parts: a line with table, count and hash, followed by rows,
each an array of all column values (bytes as base64, times as RFC 3339). The last line counts them.
`zcat FILE | head -1` shows the first line; docs/operations.md describes the format in full.
"""

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

FORMAT = "daband backup"
FORMAT_VERSION = 1
COMPRESSION = 1  # compression dominates the time, and contexts hardly compress
MOST_LINE_BYTES = 1 << 31

Line = TypeVar("Line", bound=msgspec.Struct)


class BackupError(Exception):
    """A file that must not be used as a backup, for the reason in the message."""


class Header(msgspec.Struct, frozen=True):
    """The first line: the schema's revision and the columns of each table, in the file's order."""

    format: str
    version: int
    schema: str
    created_at: str
    tables: dict[str, list[str]]


class PartLine(msgspec.Struct, frozen=True):
    """The number of rows of a table that follow, and the hash of all lines including them."""

    table: str
    rows: Annotated[int, msgspec.Meta(ge=0)]
    sha256: str


class EndLine(msgspec.Struct, frozen=True):
    """The last line: the number of rows of each table, and the hash of all lines before it."""

    end: dict[str, int]
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """Encoded rows of a table, one line each."""

    table: str
    lines: list[bytes]


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a complete file: its schema revision and row counts by table."""

    schema: str
    created_at: str
    rows: Mapping[str, int]
    sha256: str


class BackupWriter:
    """Writes header, parts and end, in this order."""

    def __init__(self, file: gzip.GzipFile, header: Header) -> None:
        self._file = file
        self._chain = hashlib.sha256()
        self._rows = dict.fromkeys(header.tables, 0)
        self._schema, self._created_at = header.schema, header.created_at
        self._line(msgspec.json.encode(header))

    def add(self, table: str, rows: Sequence[Sequence[Any]]) -> None:
        lines = [msgspec.json.encode(row) + b"\n" for row in rows]
        joined = b"".join(lines)
        bound = self._chain.copy()
        bound.update(joined)
        self._line(msgspec.json.encode(PartLine(table, len(rows), bound.hexdigest())))
        self._write(joined)
        self._rows[table] += len(rows)

    def end(self) -> Contents:
        """Write the last line; returns the contents of the file."""
        digest = self._chain.hexdigest()
        self._line(msgspec.json.encode(EndLine(self._rows, digest)))
        return Contents(self._schema, self._created_at, self._rows, digest)

    def _line(self, content: bytes) -> None:
        self._write(content + b"\n")

    def _write(self, content: bytes) -> None:
        self._chain.update(content)
        self._file.write(content)


class BackupReader:
    """Reads a backup; raises `BackupError` at the first deviation."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file
        self._chain = hashlib.sha256()
        self.header = self._decoded(self._line(), Header)
        if self.header.format != FORMAT or self.header.version != FORMAT_VERSION:
            raise BackupError(f"not a backup of format {FORMAT_VERSION}")
        self._rows = dict.fromkeys(self.header.tables, 0)
        self._contents: Contents | None = None

    def parts(self) -> Iterator[Part]:
        """The parts in order, up to the end of the file."""
        while True:
            before = self._chain.copy()
            line = self._line()
            if line.startswith(b'{"end"'):
                return self._finish(before.hexdigest(), self._decoded(line, EndLine))
            yield self._part(before, line)

    def contents(self) -> Contents:
        """The contents of the file, after all parts have been read."""
        if self._contents is None:
            raise ValueError("the file was not read to its end")
        return self._contents

    def _part(self, before: "hashlib._Hash", line: bytes) -> Part:
        part = self._decoded(line, PartLine)
        if part.table not in self._rows:
            raise BackupError("a part belongs to an unknown table")
        lines = [self._line() for _ in range(part.rows)]
        for each in lines:
            before.update(each)
        if before.hexdigest() != part.sha256:
            raise BackupError(f"a part of {part.table} has changed")
        self._rows[part.table] += part.rows
        return Part(part.table, lines)

    def _finish(self, digest: str, last: EndLine) -> None:
        if last.sha256 != digest or last.end != self._rows:
            raise BackupError("the file is not complete")
        if self._read(1):
            raise BackupError("there is data after the end line")
        self._contents = Contents(
            self.header.schema, self.header.created_at, self._rows, last.sha256
        )

    def _line(self) -> bytes:
        line = self._read(MOST_LINE_BYTES)
        if not line.endswith(b"\n"):
            raise BackupError("the file is truncated")
        self._chain.update(line)
        return line

    def _read(self, most: int) -> bytes:
        try:
            return self._file.readline(most)
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise BackupError("the file is damaged or truncated") from error
        except OSError as error:
            raise BackupError(f"the file cannot be read: {error.strerror}") from error

    def _decoded(self, line: bytes, kind: type[Line]) -> Line:
        try:
            return msgspec.json.decode(line, type=kind)
        except msgspec.MsgspecError as error:
            raise BackupError("a line has an unexpected format") from error


@contextmanager
def opened_backup(path: Path) -> Iterator[BackupReader]:
    """A reader of a backup file."""
    try:
        raw = path.open("rb")
    except OSError as error:
        raise BackupError(f"{path} cannot be opened: {error.strerror}") from error
    with raw, gzip.GzipFile(fileobj=raw) as file:
        yield BackupReader(file)


def verified(path: Path) -> Contents:
    """The contents of a file, after verifying every byte."""
    with opened_backup(path) as reader:
        for _ in reader.parts():
            pass
        return reader.contents()
