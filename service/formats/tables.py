"""Tables out of files: CSV, Parquet or JSON lines, read in pieces of bounded size and encoded by a schema.

A CSV file is read as text and converted column by column, so that a bad cell is named by its column and
row. Separator and decimal comma are found out unless they are given.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from model import Floats
from service.columns.arrow import encode_table, numbers_of, text_of
from service.columns.schema import (
    MAX_COLUMNS,
    Column,
    ColumnType,
    TableError,
    TableSchema,
    check_unique,
)
from service.formats import json_rows
from service.images.files import is_images

MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "null", "NULL")
SEPARATORS = (",", ";", "\t", "|")
BLOCK_BYTES = 1 << 22  # of CSV text at once
ROWS = 8192  # of Parquet at once
UNIT = b"unit"  # of a column, in the metadata of a Parquet file's field
MAX_APART = 8  # columns beside the context: ids, arms, rewards
_SNIFFED_BYTES = 1 << 16
_TRUE = ("true", "yes", "t", "y", "1", "1.0")
_FALSE = ("false", "no", "f", "n", "0", "0.0")
_WITH_COMMA, _WITH_POINT = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d+\.\d+")


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written; None is found out."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str = "utf-8"
    missing: Sequence[str] = MISSING


@dataclass(frozen=True)
class TableFile:
    """A file that holds a table; `batches` reads it from its beginning."""

    path: Path
    options: CsvOptions = field(default_factory=CsvOptions)

    def __post_init__(self) -> None:
        self.path.stat()  # a file that is not there is named; Arrow's errors do not
        if is_images(self.path):
            raise TableError(
                f"{self.path.name} holds images or other files, not a table. Past rounds of images need "
                "`image`, the column with the names of their files."
            )
        check_unique(self.names)
        if len(self.names) > MAX_COLUMNS + MAX_APART:
            raise TableError(
                f"{self.path.name} has {len(self.names)} columns; there may be {MAX_COLUMNS}."
            )

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet, by its name."""
        return self.path.suffix == ".parquet"

    @property
    def is_json(self) -> bool:
        """Whether it is JSON lines, by its name."""
        return Path(self.path.name.removesuffix(".gz")).suffix in json_rows.SUFFIXES

    @property
    def is_text(self) -> bool:
        """Whether its cells are text without types: CSV."""
        return not self.is_parquet and not self.is_json

    @cached_property
    def decimal(self) -> str:
        """The decimal point of its numbers."""
        return _header(self.path, self.options)[2] if self.is_text else "."

    @cached_property
    def names(self) -> list[str]:
        """The names of its columns."""
        if self.is_parquet:
            return list(self._parquet().schema_arrow.names)
        if self.is_json:
            return json_rows.column_names(self.path)
        return [name.strip() for name in _header(self.path, self.options)[0]]

    @cached_property
    def units(self) -> Mapping[str, str]:
        """The units of its columns, as far as a Parquet file states them."""
        fields = self._parquet().schema_arrow if self.is_parquet else ()
        stated = {each.name: (each.metadata or {}).get(UNIT) for each in fields}
        return {name: unit.decode() for name, unit in stated.items() if unit}

    def batches(self) -> Iterator[pa.Table]:
        """Its rows, some at a time; the cells of a CSV file are text."""
        if self.is_parquet:
            for batch in self._parquet().iter_batches(batch_size=ROWS):
                yield pa.Table.from_batches([batch])
            return
        if self.is_json:
            yield from json_rows.batches(self.path)
            return
        names = self.names
        yield from (each.rename_columns(names) for each in _csv_batches(self.path, self.options))

    def tables(self, size: int) -> Iterator[pa.Table]:
        """Its rows, `size` at a time."""
        return _of_size(self.batches(), size)

    def encoded(
        self, schema: TableSchema, size: int, apart: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> Iterator[tuple[pa.Table, Floats]]:
        """Columns set apart, and the slots (n, d) of all others, `size` rows at a time."""
        for name in apart:
            if name not in self.names:
                raise TableError(f"There is no column `{name}` in {self.path.name}.", name)
        wanted = [name for name in self.names if name not in {*apart, *drop}]
        schema.check_names(wanted)
        first_row = 0
        for table in self.tables(size):
            rows = table.select(wanted)
            if self.is_text:
                rows = _typed(self.trimmed(rows), schema, self.decimal, first_row)
            yield table.select(list(apart)), encode_table(schema, rows, first_row)
            first_row += table.num_rows

    def sample(self, rows: int, drop: Sequence[str] = ()) -> list[dict[str, Any]]:
        """The first rows with the types that their columns look like, to take a schema from."""
        table = next(self.tables(rows), pa.table({}))
        kept = table.select([name for name in table.column_names if name not in drop])
        if self.is_text:
            kept = self.guessed(self.trimmed(kept))
        found: list[dict[str, Any]] = kept.to_pylist()
        return found

    def numbers(self, table: pa.Table, name: str, first_row: int) -> np.ndarray:
        """A column of its rows as float64, NaN where it is missing."""
        column = Column(name, ColumnType.NUMERIC, missing=True)
        try:
            rows = table.select([name])
            if self.is_text:
                rows = _typed(self.trimmed(rows), TableSchema((column,)), self.decimal, 0)
            values, is_null = numbers_of(column, rows.column(0))
        except TableError as error:
            raise TableError(error.detail, name, (error.row or 0) + first_row) from None
        return np.where(is_null, np.nan, values)

    def texts(self, table: pa.Table, name: str, first_row: int) -> list[str | None]:
        """A column of its rows as text, None where it is missing."""
        rows = table.select([name])
        values = (self.trimmed(rows) if self.is_text else rows).column(0)
        if pa.types.is_temporal(values.type) or pa.types.is_null(values.type):
            values = values.cast(pa.string())
        if isinstance(values.type, pa.DictionaryType):
            values = values.cast(values.type.value_type)
        try:
            found = text_of(Column(name, ColumnType.CATEGORICAL, missing=True), values)
        except TableError as error:
            raise TableError(error.detail, name, (error.row or 0) + first_row) from None
        return [each or None for each in found.to_pylist()]

    def is_empty(self, name: str) -> bool:
        """Whether a column has no value in any row."""
        tables = (table.select([name]) for table in self.batches())
        trimmed = (self.trimmed(each) if self.is_text else each for each in tables)
        return all(each.column(0).null_count == each.num_rows for each in trimmed)

    def guessed(self, table: pa.Table) -> pa.Table:
        """Trimmed text with the types that its columns look like."""
        return pa.table({name: _guessed(table[name], self.decimal) for name in table.column_names})

    def trimmed(self, table: pa.Table) -> pa.Table:
        """Texts without the spaces around them, or null."""
        missing, null = pa.array(["", *self.options.missing]), pa.scalar(None, pa.string())
        columns = {}
        for name in table.column_names:
            texts = pc.utf8_trim_whitespace(table[name])
            columns[name] = pc.if_else(pc.is_in(texts, missing), null, texts)
        return pa.table(columns)

    def _parquet(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self.path)
        except pa.ArrowException:
            raise TableError(f"{self.path.name} is no Parquet file.") from None


def _header(path: Path, options: CsvOptions) -> tuple[list[str], str, str]:
    """Names, separator and decimal point of a CSV file."""
    with pa.input_stream(str(path), compression="detect") as stream:
        text = stream.read(_SNIFFED_BYTES).decode(options.encoding, errors="replace")
    lines = text.removeprefix("\ufeff").splitlines()
    if not lines or not lines[0].strip():
        raise TableError(f"{path.name} has no header line with the names of its columns.")
    found = {each: _split(lines[:1], each)[0] for each in SEPARATORS}
    separator = options.separator or max(SEPARATORS, key=lambda each: len(found[each]))
    names, *rows = _split(lines[:200], separator)
    cells = [cell.strip() for row in rows for cell in row]
    has_commas = any(_WITH_COMMA.fullmatch(cell) for cell in cells)
    has_points = any(_WITH_POINT.fullmatch(cell) for cell in cells)
    decimal = options.decimal or ("," if has_commas and not has_points else ".")
    return names, separator, decimal


def _split(lines: Sequence[str], separator: str) -> list[list[str]]:
    return list(csv.reader(lines, delimiter=separator)) or [[]]


def _csv_batches(path: Path, options: CsvOptions) -> Iterator[pa.Table]:
    names, separator, _ = _header(path, options)
    uneven: list[pa_csv.InvalidRow] = []

    def remember(row: pa_csv.InvalidRow) -> str:
        uneven.append(row)
        return "error"

    try:
        reader = pa_csv.open_csv(
            str(path),
            pa_csv.ReadOptions(
                use_threads=False, block_size=BLOCK_BYTES, encoding=options.encoding
            ),
            pa_csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, invalid_row_handler=remember
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,  # which texts mean that is decided once they are trimmed
            ),
        )
        for batch in reader:
            yield pa.Table.from_batches([batch])
    except (pa.ArrowException, UnicodeError) as error:
        raise _csv_error(path, error, uneven) from None


def _csv_error(path: Path, error: Exception, uneven: Sequence[Any]) -> TableError:
    """What is wrong, without the cells that Arrow quotes."""
    if uneven:
        row = uneven[0]
        place = "" if row.number is None else f"line {row.number}: "
        return TableError(f"{place}{row.actual_columns} cells where {row.expected_columns} belong.")
    if isinstance(error, UnicodeError) or "UTF8" in str(error):
        return TableError(f"{path.name} is not UTF-8: name its encoding, or save it as UTF-8.")
    return TableError(f"{path.name} is no CSV file.")


def _of_size(tables: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """The same rows in tables of one size, but for the last."""
    waiting: list[pa.Table] = []
    for table in tables:
        waiting.append(table)
        if sum(each.num_rows for each in waiting) < size:
            continue
        joined = _joined(waiting)
        end = joined.num_rows - joined.num_rows % size
        yield from (joined.slice(start, size) for start in range(0, end, size))
        waiting = [joined.slice(end)]
    rest = _joined(waiting) if waiting else pa.table({})
    if rest.num_rows:
        yield rest


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """One table; a column of JSON may be integers here and numbers there."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException:
        for name in tables[0].column_names:
            try:
                pa.concat_tables(
                    [each.select([name]) for each in tables], promote_options="permissive"
                )
            except pa.ArrowException:
                raise TableError(f"Column `{name}` mixes types.", name) from None
        raise


def _typed(table: pa.Table, schema: TableSchema, decimal: str, first_row: int) -> pa.Table:
    """The text of each column as the schema says."""
    columns: dict[str, pa.ChunkedArray] = {}
    for name in table.column_names:
        column, texts = schema.by_name[name], table[name]
        convert = _CONVERSIONS.get(column.type)
        columns[name] = texts if convert is None else convert(column, texts, decimal, first_row)
    return pa.table(columns)


def _as_numbers(
    column: Column, texts: pa.ChunkedArray, decimal: str, first_row: int
) -> pa.ChunkedArray:
    found = _numbers(texts, decimal)
    if found is None:
        is_bad = [
            _numbers(pa.chunked_array([[each]], pa.string()), decimal) is None
            for each in texts.to_pylist()
        ]
        _refuse(column, np.array(is_bad), first_row)
    return found


def _numbers(texts: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    if decimal != ".":
        texts = pc.replace_substring(texts, decimal, ".")
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _as_booleans(
    column: Column, texts: pa.ChunkedArray, decimal: str, first_row: int
) -> pa.ChunkedArray:
    lower = pc.utf8_lower(texts)
    is_true, is_false = (pc.is_in(lower, pa.array(words)) for words in (_TRUE, _FALSE))
    is_known = pc.or_(pc.or_(is_true, is_false), pc.is_null(texts))
    _refuse(column, ~np.asarray(is_known), first_row)
    return pc.if_else(pc.is_null(texts), pa.scalar(None, pa.bool_()), is_true)


def _refuse(column: Column, is_bad: np.ndarray, first_row: int) -> None:
    if is_bad.any():
        raise column.misfit(first_row + int(np.argmax(is_bad)))


_Convert = Callable[[Column, pa.ChunkedArray, str, int], pa.ChunkedArray]
_CONVERSIONS: Mapping[ColumnType, _Convert] = {
    ColumnType.NUMERIC: _as_numbers,
    ColumnType.BOOLEAN: _as_booleans,
}


def _guessed(texts: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    """Numbers, booleans (true and false alone) or text, by all values of a column."""
    numbers = _numbers(texts, decimal)
    if numbers is not None:
        return numbers
    lower = pc.utf8_lower(texts)
    is_word = pc.is_in(lower, pa.array(["true", "false"]))
    if pc.all(pc.or_(is_word, pc.is_null(texts))).as_py():
        return pc.if_else(pc.is_null(texts), pa.scalar(None, pa.bool_()), pc.equal(lower, "true"))
    return texts
