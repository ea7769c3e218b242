"""Tables out of files: CSV, Parquet or JSON lines, read in pieces of bounded size and encoded by a schema.

A CSV file is read as text and converted column by column, so that a bad cell is named by its column and row.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model import Floats
from service.columns.arrow import encode_table, numbers_of, plain_values, refuse, text_of
from service.columns.schema import (
    MAX_COLUMNS,
    Column,
    ColumnType,
    TableError,
    TableSchema,
    absent_column,
    check_unique,
    rows_from,
)
from service.formats.rows import csv_rows, json_rows
from service.formats.rows.csv_rows import CsvOptions
from service.formats.rows.parquet_rows import ParquetRows
from service.images.files import is_images
from service.unpacking import MAX_PIECE_BYTES, UNLIMITED, Budget, OverBudgetError, rows_at_once

UNIT = b"unit"  # of a column, in the metadata of a Parquet file's field
MAX_APART = 8  # columns beside the context: ids, arms, rewards
_INDEX = re.compile(r"__index_level_\d+__")
_TRUE = ("true", "yes", "t", "y", "1", "1.0")
_FALSE = ("false", "no", "f", "n", "0", "0.0")


@dataclass(frozen=True)
class TableFile:
    """A file that holds a table; `batches` reads it from its beginning.

    `sent_as` names a file that a caller sent, which is read within a budget.
    """

    path: Path
    options: CsvOptions = field(default_factory=CsvOptions)
    sent_as: str | None = None

    def __post_init__(self) -> None:
        self.path.stat()  # a file that is not there is named; Arrow's errors do not
        if is_images(self.path.with_name(self.name)):
            raise TableError(
                f"{self.name} holds images or other files, not a table. Past rounds of images need "
                "`image`, the column with the names of their files."
            )
        check_unique(self.names)
        if len(self.names) > MAX_COLUMNS + MAX_APART:
            raise TableError(
                f"{self.name} has {len(self.names)} columns; there may be {MAX_COLUMNS}."
            )

    @property
    def name(self) -> str:
        """What the file is called; its end says the format."""
        return self.sent_as or self.path.name

    @property
    def is_parquet(self) -> bool:
        """Whether it is Parquet, by its name."""
        return Path(self.name).suffix.lower() == ".parquet"

    @property
    def is_json(self) -> bool:
        """Whether it is JSON lines, by its name."""
        return Path(self.name.lower().removesuffix(".gz")).suffix in json_rows.SUFFIXES

    @property
    def is_text(self) -> bool:
        """Whether its cells are text without types: CSV."""
        return not self.is_parquet and not self.is_json

    @cached_property
    def names(self) -> list[str]:
        """The names of its columns."""
        if self.is_parquet:
            # pandas keeps the index of a frame beside its columns.
            names = self._parquet.schema.names
            return [name for name in names if not _INDEX.fullmatch(name)]
        if self.is_json:
            return json_rows.column_names(self.path, self.name)
        return self._header.columns

    @cached_property
    def units(self) -> Mapping[str, str]:
        """The units of its columns, as far as a Parquet file states them."""
        fields = self._parquet.schema if self.is_parquet else ()
        stated = {each.name: (each.metadata or {}).get(UNIT) for each in fields}
        return {name: unit.decode() for name, unit in stated.items() if unit}

    def require(self, *names: str) -> None:
        """Refuse the name of a column that is not there; the message lists those that are."""
        for name in names:
            if name not in self.names:
                raise absent_column(name, self.name, self.names)

    def batches(self, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Some columns of its rows, or all, some rows at a time; the cells of a CSV file are text."""
        wanted = self.names if names is None else list(dict.fromkeys(names))
        budget = Budget() if self.sent_as else UNLIMITED
        try:
            for table in self._read(wanted, budget):
                budget.charge(table.num_rows, len(wanted))
                yield table
        except OverBudgetError as error:
            raise TableError(str(error)) from None

    def tables(self, size: int, names: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """The same, `size` rows at a time; fewer if they are large."""
        return _of_size(self.batches(names), size)

    def encoded(
        self, schema: TableSchema, size: int, apart: Sequence[str] = (), drop: Sequence[str] = ()
    ) -> Iterator[tuple[pa.Table, Floats]]:
        """Columns set apart, and the slots (n, d) of all others, `size` rows at a time."""
        self.require(*apart)
        wanted = [name for name in self.names if name not in {*apart, *drop}]
        schema.check_names(wanted)
        rows = rows_at_once(size, max(schema.width, len(wanted)))
        first_row = 0
        for table in self.tables(rows, [*apart, *wanted]):
            with rows_from(first_row):
                slots = encode_table(schema, self._typed(table.select(wanted), schema))
            yield table.select(list(apart)), slots
            first_row += table.num_rows

    def sample(self, rows: int) -> list[dict[str, Any]]:
        """The first rows with the types that their columns look like, to take a schema from."""
        names = self._parquet.plain(self.names) if self.is_parquet else self.names
        table = next(self.tables(rows, names), pa.table({}))
        found: list[dict[str, Any]] = self.guessed(self.trimmed(table)).to_pylist()
        unread = dict.fromkeys(name for name in self.names if name not in names)
        return [row | unread for row in found]

    def numbers(self, table: pa.Table, name: str, first_row: int) -> np.ndarray:
        """A column of its rows as float64, NaN where it is missing."""
        column = Column(name, ColumnType.NUMERIC, missing=True)
        with rows_from(first_row):
            rows = self._typed(table.select([name]), TableSchema((column,)))
            values, is_null = numbers_of(column, rows.column(0))
        return np.where(is_null, np.nan, values)

    def rewards(self, table: pa.Table, name: str, first_row: int) -> np.ndarray:
        """A column of rewards as float64, NaN where it is missing; true and yes are 1, false and no 0."""
        values = table[name]
        if self.is_text:
            lower = pc.utf8_lower(pc.utf8_trim_whitespace(values))
            values = pc.if_else(pc.is_in(lower, pa.array(_TRUE)), "1", values)
            values = pc.if_else(pc.is_in(lower, pa.array(_FALSE)), "0", values)
        elif pa.types.is_boolean(values.type):
            values = values.cast(pa.int8())
        try:
            return self.numbers(pa.table({name: values}), name, first_row)
        except TableError as error:
            raise TableError(
                f"Column `{name}` holds no number here. A reward is a number, and more is better: write "
                "one for each outcome, such as 1 for improved and 0 for worse.",
                name,
                error.row,
            ) from None

    def texts(self, table: pa.Table, name: str, first_row: int) -> list[str | None]:
        """A column of its rows as text, None where it is missing."""
        values = self._cells(table, name)
        if pa.types.is_temporal(values.type) or pa.types.is_null(values.type):
            values = values.cast(pa.string())
        if isinstance(values.type, pa.DictionaryType):
            values = values.cast(values.type.value_type)
        with rows_from(first_row):
            found = text_of(Column(name, ColumnType.CATEGORICAL, missing=True), values)
        return [each or None for each in plain_values(found)]

    def is_empty(self, name: str) -> bool:
        """Whether a column has no value in any row."""
        columns = (self._cells(table, name) for table in self.batches([name]))
        return all(cells.null_count == len(cells) for cells in columns)

    def repeats(self, name: str) -> int:
        """How many rows have a value of a column that an earlier row has."""
        seen: set[int] = set()  # of hashes: the values may be long
        rows = 0
        for table in self.batches([name]):
            values = self._cells(table, name).drop_null()
            seen.update(map(hash, plain_values(values)))
            rows += len(values)
        return rows - len(seen)

    def require_values(self, name: str) -> None:
        """Refuse a column that is not there, or that a row has no value of."""
        self.require(name)
        first_row = 0
        for table in self.batches([name]):
            cells = self._cells(table, name)
            place = pc.index(cells.is_null(nan_is_null=True), pa.scalar(True)).as_py()
            if place >= 0:
                raise TableError(f"Column `{name}` may not be missing.", name, first_row + place)
            first_row += table.num_rows

    def guessed(self, table: pa.Table) -> pa.Table:
        """Trimmed text with the types that its columns look like; other cells have theirs."""
        if not self.is_text:
            return table
        return pa.table(
            {name: _guessed(table[name], self._header.decimal) for name in table.column_names}
        )

    def trimmed(self, table: pa.Table) -> pa.Table:
        """Texts without the spaces around them, or null; other cells as they are."""
        if not self.is_text:
            return table
        missing, null = pa.array(csv_rows.MISSING), pa.scalar(None, pa.string())
        columns = {}
        for name in table.column_names:
            texts = pc.utf8_trim_whitespace(table[name])
            columns[name] = pc.if_else(pc.is_in(texts, missing), null, texts)
        return pa.table(columns)

    def _cells(self, table: pa.Table, name: str) -> pa.ChunkedArray:
        """A trimmed column."""
        return self.trimmed(table.select([name])).column(0)

    def _typed(self, table: pa.Table, schema: TableSchema) -> pa.Table:
        """Its cells, and the text of each column as the schema says."""
        if not self.is_text:
            return table
        texts = self.trimmed(table)
        columns: dict[str, pa.ChunkedArray] = {}
        for name in table.column_names:
            column = schema.by_name[name]
            convert, cells = _CONVERSIONS.get(column.type), texts[name]
            columns[name] = convert(column, cells, self._header.decimal) if convert else cells
        return pa.table(columns)

    @cached_property
    def _header(self) -> csv_rows.Header:
        return csv_rows.read_header(self.path, self.name, self.options)

    @cached_property
    def _parquet(self) -> ParquetRows:
        return ParquetRows(self.path, self.name)

    def _read(self, wanted: Sequence[str], budget: Budget) -> Iterator[pa.Table]:
        if self.is_parquet:
            yield from self._parquet.batches(wanted, budget)
        elif self.is_json:
            yield from json_rows.batches(self.path, self.names, wanted)
        else:
            for table in csv_rows.batches(self.path, self._header):
                yield table.select(wanted)


def _of_size(tables: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """The same rows in tables of one size, but for the last and large ones."""
    waiting: list[pa.Table] = []
    rows = size_bytes = 0
    for table in tables:
        waiting.append(table)
        rows += table.num_rows
        size_bytes += table.nbytes
        is_large = size_bytes > MAX_PIECE_BYTES
        if rows < size and not is_large:
            continue
        joined = _joined(waiting)
        end = rows if is_large else rows - rows % size
        yield from (joined.slice(start, size) for start in range(0, end, size))
        waiting = [joined.slice(end)]
        rows, size_bytes = waiting[0].num_rows, waiting[0].nbytes
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


def _as_numbers(column: Column, texts: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    found = _numbers(texts, decimal)
    if found is None:
        is_bad = [
            _numbers(pa.chunked_array([[each]], pa.string()), decimal) is None
            for each in texts.to_pylist()
        ]
        refuse(column, np.array(is_bad))
    return found


def _numbers(texts: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray | None:
    if decimal != ".":
        texts = pc.replace_substring(texts, decimal, ".")
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _as_booleans(column: Column, texts: pa.ChunkedArray, decimal: str) -> pa.ChunkedArray:
    lower = pc.utf8_lower(texts)
    is_true, is_false = (pc.is_in(lower, pa.array(words)) for words in (_TRUE, _FALSE))
    is_known = pc.or_(pc.or_(is_true, is_false), pc.is_null(texts))
    refuse(column, ~np.asarray(is_known))
    return pc.if_else(pc.is_null(texts), pa.scalar(None, pa.bool_()), is_true)


_Convert = Callable[[Column, pa.ChunkedArray, str], pa.ChunkedArray]
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
