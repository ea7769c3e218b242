"""What a Parquet file takes once it is unpacked, read from its own page headers before a page is.

The sizes in a file's footer are claims that no reader checks; the headers of the pages are what readers
act on. Both are Thrift's compact protocol, of which this reads as much as it takes to count.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from service.limits import MEBIBYTE
from service.unpacking import MAX_FOOTER_BYTES, MAX_PAGE_BYTES, MAX_PAGES, Budget, OverBudgetError

MAGIC = b"PAR1"
_END_BYTES = 8  # the footer's length and the magic bytes
_SMALL_FOOTER_BYTES = 1 << 20  # what it describes fits, whatever it is
_STRUCT_BYTES, _ITEM_BYTES = 720, 32  # of Arrow's memory, at most
_HEADER_BYTES = (1 << 10, 1 << 14, 1 << 20)  # of a page; long ones have statistics of long texts
_ENTRY_BYTES = 64  # of Arrow's table of a dictionary's values, beside the values

# Thrift's compact types.
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 11, 12
_INTEGERS = (4, 5, 6)
_SIZES = {_TRUE: 0, _FALSE: 0, _BYTE: 1, _DOUBLE: 8}
_DEEPEST = 16
# Fields of a page header, and of the header of a dictionary in it.
_UNPACKED, _PACKED, _DATA, _DICTIONARY, _DATA_V2 = 2, 3, 5, 7, 8
_VALUES, _ENCODING, _ENCODING_V2 = 1, 2, 4
_DELTA_BYTE_ARRAY = 7  # texts by what they share with the one before, however long that is


class PagesError(ValueError):
    """The file is damaged."""


class EncodingError(PagesError):
    """Texts are written by what they share with the one before, so that few bytes are many."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """What a column takes in a row group: all of its pages, and those that are open at once."""

    all_bytes: int
    open_bytes: int
    pages: int


def check_footer(descriptor: int) -> None:
    """Refuse a footer that describes more than fits in memory."""
    size = os.fstat(descriptor).st_size
    end = os.pread(descriptor, _END_BYTES, max(0, size - _END_BYTES))
    length = int.from_bytes(end[:4], "little")
    if len(end) < _END_BYTES or end[4:] != MAGIC or length + _END_BYTES > size:
        raise PagesError("no Parquet")
    if length <= _SMALL_FOOTER_BYTES:
        return
    if length <= MAX_FOOTER_BYTES // 8:
        footer = _Compact(os.pread(descriptor, length, size - _END_BYTES - length))
        footer.skip(_STRUCT)
        if footer.size_bytes <= MAX_FOOTER_BYTES:
            return
    raise OverBudgetError(
        "The footer of the Parquet file describes too many row groups and columns: write larger row groups."
    )


def chunk_of(descriptor: int, start: int, length: int, budget_pages: int = MAX_PAGES) -> Chunk:
    """What the pages of a column take that begin at an offset."""
    all_bytes = open_data = dictionary = pages = 0
    at, end = start, min(start + length, os.fstat(descriptor).st_size)
    while at < end:
        header, header_bytes = _header_at(descriptor, at)
        unpacked, packed = header.get(_UNPACKED, 0), header.get(_PACKED, 0)
        if unpacked < 0 or packed < 0:
            raise PagesError("a page of negative size")
        pages += 1
        if pages > budget_pages:
            raise OverBudgetError(
                f"A Parquet file has at most {MAX_PAGES:,} pages: write larger pages."
            )
        all_bytes += unpacked
        if _DICTIONARY in header:
            values = header[_DICTIONARY].get(_VALUES, 0)
            dictionary = max(dictionary, packed + 2 * unpacked + _ENTRY_BYTES * max(0, values))
        else:
            open_data = max(open_data, packed + unpacked)
            _check_encoding(header)
        at += header_bytes + packed
    return Chunk(all_bytes, dictionary + open_data, pages)


def charge_group(chunks: list[Chunk], budget: Budget) -> None:
    """Count the pages of a row group, before one of them is unpacked."""
    if sum(each.open_bytes for each in chunks) > MAX_PAGE_BYTES:
        raise OverBudgetError(
            f"The pages of a row group that are open at once, one of each column, have at most "
            f"{MAX_PAGE_BYTES // MEBIBYTE} MiB unpacked: write smaller pages, or CSV."
        )
    budget.charge(size_bytes=sum(each.all_bytes for each in chunks))


def _check_encoding(header: dict[int, Any]) -> None:
    first, second = header.get(_DATA, {}), header.get(_DATA_V2, {})
    if _DELTA_BYTE_ARRAY in (first.get(_ENCODING), second.get(_ENCODING_V2)):
        raise EncodingError


def _header_at(descriptor: int, at: int) -> tuple[dict[int, Any], int]:
    """The integers of a page's header, those of structs in it as well, and its length."""
    for size in _HEADER_BYTES:
        found = _Compact(os.pread(descriptor, size, at))
        try:
            return found.struct(), found.at
        except IndexError:
            continue
    raise PagesError("a page without a header")


class _Compact:
    """Reads values of Thrift's compact protocol; an `IndexError` says that the content ends before."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0
        self.size_bytes = 0  # what lists and structs take in Arrow's memory

    def struct(self) -> dict[int, Any]:
        """The integers of a struct by their field, and those of the structs in it."""
        found: dict[int, Any] = {}
        for field, kind in self._fields():
            if kind in _INTEGERS:
                found[field] = self._integer()
            elif kind == _STRUCT:
                found[field] = self.struct()
            else:
                self.skip(kind)
        return found

    def skip(self, kind: int, depth: int = 0) -> None:
        """Pass over a value."""
        if depth > _DEEPEST:
            raise PagesError("nested too deeply")
        if kind == _STRUCT:
            self.size_bytes += _STRUCT_BYTES
            for _, inner in self._fields():
                self.skip(inner, depth + 1)
        elif kind in (_LIST, _SET):
            self._skip_items(depth)
        elif kind == _BINARY:
            self._pass(self._varint())
        elif kind in _INTEGERS:
            self._varint()
        elif kind in _SIZES:
            self._pass(_SIZES[kind])
        else:
            raise PagesError("an unknown type")

    def _skip_items(self, depth: int) -> None:
        first = self._byte()
        count, kind = first >> 4, first & 0x0F
        if count == 15:
            count = self._varint()
        if kind in (_TRUE, _FALSE):
            kind = _BYTE
        for _ in range(count):
            self.size_bytes += _ITEM_BYTES
            if self.size_bytes > MAX_FOOTER_BYTES:
                return  # which is enough to know
            self.skip(kind, depth + 1)

    def _fields(self) -> Iterator[tuple[int, int]]:
        field = 0
        while first := self._byte():
            delta, kind = first >> 4, first & 0x0F
            field = field + delta if delta else self._integer()
            yield field, kind

    def _integer(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)

    def _varint(self) -> int:
        found = shift = 0
        while True:
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:
                return found
            shift += 7
            if shift > 63:
                raise PagesError("a number that is too long")

    def _byte(self) -> int:
        found = self._content[self.at]
        self.at += 1
        return found

    def _pass(self, size: int) -> None:
        self.at += size
        if self.at > len(self._content):
            raise IndexError
