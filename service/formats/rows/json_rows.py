"""Tables as JSON lines: one object of columns a line."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from service.columns.schema import MAX_COLUMNS, MAX_TEXT, TableError
from service.formats.rows.lines import LineTooLongError, lines_of
from service.unpacking import MAX_ROW_BYTES

SUFFIXES = (".jsonl", ".ndjson")
ROWS = 8192  # at once
_SAMPLED_ROWS = 1000  # whose keys are the columns
_MOST_KEYS = 2 * MAX_COLUMNS  # before the names are looked at

_Row = dict[str, bool | int | float | str | None]
_decode = msgspec.json.Decoder(_Row).decode


def column_names(path: Path, file: str) -> list[str]:
    """The keys of the first rows of a file, which messages call by its name."""
    names: dict[str, None] = {}
    for number, (row, _) in enumerate(islice(_rows(path), _SAMPLED_ROWS)):
        names |= dict.fromkeys(row)
        if len(names) > _MOST_KEYS:
            raise _too_many(number)
    if not names:
        raise TableError(f"{file} has no row: each line is a JSON object of columns.")
    return list(names)


def batches(path: Path, names: Sequence[str], wanted: Sequence[str]) -> Iterator[pa.Table]:
    """The wanted columns of the rows, some at a time; a key that a row lacks is missing there."""
    known, first_row = frozenset(names), 0
    for some in _in_pieces(_rows(path)):
        for number, row in enumerate(some, first_row):
            if not row.keys() <= known:
                unknown = next(key for key in row if key not in known)
                raise TableError(f"Unknown column `{unknown[:MAX_TEXT]}`.", unknown, number)
        yield pa.table({name: _column(name, some, first_row) for name in wanted})
        first_row += len(some)


def _in_pieces(rows: Iterator[tuple[_Row, int]]) -> Iterator[list[_Row]]:
    """Some rows at a time, of bounded size: an object takes many times the memory of its text."""
    some: list[_Row] = []
    size = 0
    for row, length in rows:
        some.append(row)
        size += length
        if len(some) == ROWS or size > MAX_ROW_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def _rows(path: Path) -> Iterator[tuple[_Row, int]]:
    """Each row, and the length of its line."""
    with pa.input_stream(str(path), compression="detect") as stream:
        number = 0
        try:
            for line in lines_of(stream, MAX_ROW_BYTES):
                if line.strip():
                    yield _row(line, number), len(line)
                    number += 1
        except LineTooLongError as error:
            raise TableError(str(error), None, number) from None


def _row(line: bytes, number: int) -> _Row:
    try:
        row = _decode(line)
    except (ValueError, RecursionError):
        raise TableError("Not a JSON object of columns.", None, number) from None
    if len(row) > _MOST_KEYS:
        raise _too_many(number)
    return row


def _too_many(row: int) -> TableError:
    return TableError(f"A table has at most {MAX_COLUMNS} columns.", None, row)


def _column(name: str, rows: Sequence[Mapping[str, Any]], first_row: int) -> pa.Array:
    values = [row.get(name) for row in rows]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        kind = next(type(each) for each in values if each is not None)
        row = next(
            (at for at, each in enumerate(values) if type(each) not in (kind, type(None))), 0
        )
        raise TableError(f"Column `{name}` mixes types.", name, first_row + row) from None
