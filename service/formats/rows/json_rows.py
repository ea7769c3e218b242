"""Tables as JSON lines: one object of columns a line."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from service.columns.schema import MAX_TEXT, TableError

SUFFIXES = (".jsonl", ".ndjson")
ROWS = 8192  # at once
_SAMPLED_ROWS = 1000  # whose keys are the columns

_Row = dict[str, bool | int | float | str | None]
_decode = msgspec.json.Decoder(_Row).decode


def column_names(path: Path) -> list[str]:
    """The keys of the first rows."""
    names = dict.fromkeys(key for row in islice(_rows(path), _SAMPLED_ROWS) for key in row)
    if not names:
        raise TableError(f"{path.name} has no row: each line is a JSON object of columns.")
    return list(names)


def batches(path: Path) -> Iterator[pa.Table]:
    """The rows, some at a time; a key that a row lacks is missing there."""
    names = column_names(path)
    rows, first_row = _rows(path), 0
    while some := list(islice(rows, ROWS)):
        for number, row in enumerate(some):
            for unknown in row.keys() - set(names):
                raise TableError(
                    f"Unknown column `{unknown[:MAX_TEXT]}`.", unknown, first_row + number
                )
        yield pa.table({name: _column(name, some, first_row) for name in names})
        first_row += len(some)


def _rows(path: Path) -> Iterator[_Row]:
    with pa.input_stream(str(path), compression="detect") as stream:
        number = 0
        for line in _lines(stream):
            if line.strip():
                try:
                    row = _decode(line)
                except (msgspec.MsgspecError, RecursionError, UnicodeError):
                    raise TableError("Not a JSON object of columns.", None, number) from None
                yield row
                number += 1


def _lines(stream: Any) -> Iterator[bytes]:
    rest = b""
    while piece := stream.read(1 << 20):
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    yield rest


def _column(name: str, rows: Sequence[Mapping[str, Any]], first_row: int) -> pa.Array:
    values = [row.get(name) for row in rows]
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        kind = next(type(each) for each in values if each is not None)
        row = next(at for at, each in enumerate(values) if type(each) not in (kind, type(None)))
        raise TableError(f"Column `{name}` mixes types.", name, first_row + row) from None
