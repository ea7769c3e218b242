"""CSV files as text, some rows at a time; separator, decimal point and UTF-16 are found out.

Columns without a name are not read: they are the row numbers of pandas and R, and what Excel saves
beside a table. Nor are the rows without any value at the end, which Excel saves below it.
"""

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from service.columns.schema import TableError
from service.limits import MEBIBYTE
from service.unpacking import MAX_ROW_BYTES

MISSING = (
    *("", "NA", "N/A", "n/a", "#N/A", "#NV", "NaN", "nan", "null", "NULL", "None", "<NA>"),
    *(".", "?"),  # as SAS and the UCI repository write it
)
SEPARATORS = (",", ";", "\t", "|")
BLOCK_BYTES = MAX_ROW_BYTES  # of text at once
_SNIFFED_BYTES = 1 << 16
_SNIFFED_ROWS = 200
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_WORKBOOKS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0")  # how .xlsx, .ods and .xls begin
# Codecs of Python that are no way to write a file, and take long or read escapes.
_NO_FILES = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
_TOO_LONG = "straddling object"  # Arrow of a row that does not lie in one block
_BREAK = re.compile(r"\s*[\r\n]\s*")  # in a name that is broken into lines
_WITH_COMMA, _WITH_POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d+\.\d+")


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written; None is found out."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str = "utf-8"

    def __post_init__(self) -> None:
        """Refuse with a `LookupError` what is no encoding of text, such as `zlib` or `hex`."""
        try:
            found = codecs.lookup(self.encoding)
        except (LookupError, ValueError):
            raise LookupError("Unknown encoding.") from None
        name = found.name.replace("_", "-")
        if not found._is_text_encoding or name in _NO_FILES:
            raise LookupError("Unknown encoding.")


@dataclass(frozen=True, slots=True)
class Header:
    """How a CSV file is written, and the names of its columns; some may be empty."""

    file: str
    names: list[str]
    separator: str
    decimal: str
    encoding: str

    @property
    def columns(self) -> list[str]:
        """The names without the empty ones."""
        return [name for name in self.names if name]


def read_header(path: Path, name: str, options: CsvOptions) -> Header:
    """The header of a file, which messages call by its name; `TableError` if it is no text."""
    with pa.input_stream(str(path), compression="detect") as stream:
        start = stream.read(_SNIFFED_BYTES)
    encoding = "utf-16" if start.startswith(_UTF16) else options.encoding
    lines = _text(name, start, encoding).removeprefix("\ufeff").splitlines(keepends=True)
    found = {each: len(next(_split(lines, each), ())) for each in SEPARATORS}
    separator = options.separator or max(SEPARATORS, key=lambda each: found[each])
    first, *rows = islice(_split(lines, separator), _SNIFFED_ROWS) if lines else [[]]
    names = [_BREAK.sub(" ", each).strip() for each in first]
    if not any(names):
        raise TableError(f"{name} has no header line with the names of its columns.")
    cells = [cell.strip() for row in rows for cell in row]
    has_commas = separator == ";" or any(map(_WITH_COMMA.fullmatch, cells))
    has_points = any(map(_WITH_POINT.fullmatch, cells))
    decimal = options.decimal or ("," if has_commas and not has_points else ".")
    return Header(name, names, separator, decimal, encoding)


def batches(path: Path, header: Header) -> Iterator[pa.Table]:
    """The rows of the columns that have a name, without those at the end that hold nothing."""
    places = [place for place, name in enumerate(header.names) if name]
    waiting: list[pa.Table] = []  # rows without a value, which are the end unless others follow
    for batch in _all_batches(path, header):
        table = pa.Table.from_batches([batch]).select(places).rename_columns(header.columns)
        end = _end(table)
        if end:
            yield from (*waiting, table.slice(0, end))
            waiting = []
        waiting.append(table.slice(end))


def _text(file: str, start: bytes, encoding: str) -> str:
    """The beginning of a file as text; its last character may be cut."""
    if start.startswith(_WORKBOOKS):
        raise TableError(f"{file} is a workbook or an archive: save its sheet as CSV.")
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start)
    except UnicodeError:
        raise _not_in(file, encoding) from None
    if "\0" in text:
        raise TableError(f"{file} is no CSV file.")
    return text


def _split(lines: Sequence[str], separator: str) -> Iterator[list[str]]:
    return iter(csv.reader(lines, delimiter=separator))


def _all_batches(path: Path, header: Header) -> Iterator[pa.RecordBatch]:
    uneven: list[pa_csv.InvalidRow] = []

    def remember(row: pa_csv.InvalidRow) -> str:
        uneven.append(row)
        return "error"

    try:
        yield from pa_csv.open_csv(
            str(path),
            pa_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                encoding=header.encoding,
                column_names=[str(place) for place in range(len(header.names))],
                skip_rows_after_names=1,
            ),
            pa_csv.ParseOptions(
                delimiter=header.separator, newlines_in_values=True, invalid_row_handler=remember
            ),
            pa_csv.ConvertOptions(
                column_types={str(place): pa.string() for place in range(len(header.names))},
                strings_can_be_null=False,  # which texts mean that is decided once they are trimmed
            ),
        )
    except (pa.ArrowException, UnicodeError) as error:
        raise _error(header, error, uneven) from None


def _end(table: pa.Table) -> int:
    """How many rows there are up to the last with a value; of one column, empty cells are values."""
    rows: int = table.num_rows
    if table.num_columns == 1:
        return rows
    is_empty = pc.equal(table.column(0), "")
    for column in table.columns[1:]:
        if not pc.any(is_empty).as_py():
            break
        is_empty = pc.and_(is_empty, pc.equal(column, ""))
    filled = np.flatnonzero(~np.asarray(is_empty))
    return int(filled[-1]) + 1 if len(filled) else 0


def _error(header: Header, error: Exception, uneven: Sequence[Any]) -> TableError:
    """What is wrong, without the cells that Arrow quotes."""
    if uneven:
        row = uneven[0]
        place = "" if row.number is None else f"line {row.number}: "
        return TableError(f"{place}{row.actual_columns} cells where {row.expected_columns} belong.")
    if isinstance(error, UnicodeError) or "UTF8" in str(error):
        return _not_in(header.file, header.encoding)
    if _TOO_LONG in str(error):
        return TableError(
            f"A row of CSV has at most {MAX_ROW_BYTES // MEBIBYTE} MiB: shorten or leave out long texts."
        )
    return TableError(f"{header.file} is no CSV file.")


def _not_in(file: str, encoding: str) -> TableError:
    return TableError(
        f"{file} is not {encoding.upper()}: name its encoding, such as cp1252, or save it as UTF-8."
    )
