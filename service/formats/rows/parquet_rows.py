"""Parquet files, some rows at a time: only the columns that are wanted, and texts only as far as they fit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from service.columns.schema import TableError
from service.formats.rows.parquet_pages import (
    Chunk,
    EncodingError,
    PagesError,
    charge_group,
    check_footer,
    chunk_of,
)
from service.unpacking import (
    MAX_CELL_BYTES,
    MAX_PAGES,
    MAX_PIECE_BYTES,
    Budget,
    OverBudgetError,
    rows_at_once,
)

ROWS = 8192  # at once
BUFFER_BYTES = 1 << 14  # of packed bytes, for each column


class ParquetRows:
    """The rows of a file; `OverBudgetError` says that it holds more than a file may."""

    def __init__(self, path: Path, file: str) -> None:
        self._path = path
        self._name = file

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns with their types."""
        return self._opened().schema_arrow

    def plain(self, names: Sequence[str]) -> list[str]:
        """The columns that can be read: those that are not nested and hold no bytes."""
        return [name for name in names if _is_plain(self.schema.field(name).type)]

    def batches(self, names: Sequence[str], budget: Budget) -> Iterator[pa.Table]:
        """The rows of some columns; what is unpacked is charged before."""
        self._check_types(names)
        if not names:
            raise TableError(f"{self._name} has no column to read.")
        leaves = self._leaves(names)
        places = sorted(leaves.values())
        opened = self._opened(names)
        replace(budget).charge(opened.metadata.num_rows, len(names))  # what it claims to have
        pages = MAX_PAGES
        with self._path.open("rb") as file:
            for group in range(opened.num_row_groups):
                chunks = self._chunks(opened, group, places, file.fileno(), pages)
                pages -= sum(each.pages for each in chunks)
                charge_group(chunks, budget)
                rows = rows_at_once(ROWS, len(places))
                for batch in opened.reader.iter_batches(
                    rows, [group], column_indices=places, use_threads=False
                ):
                    yield from self._in_texts(batch.select(list(names)), budget)

    def _opened(self, names: Sequence[str] = ()) -> pq.ParquetFile:
        """The file; texts come as dictionaries, so that one text in many rows is there once."""
        texts = [name for name in names if _is_text(self.schema.field(name).type)]
        try:
            with self._path.open("rb") as file:
                check_footer(file.fileno())
            return pq.ParquetFile(
                self._path,
                read_dictionary=texts,
                pre_buffer=False,
                buffer_size=BUFFER_BYTES,
                arrow_extensions_enabled=False,
            )
        except OverBudgetError as error:
            raise TableError(str(error)) from None
        except (pa.ArrowException, PagesError, IndexError, OSError):
            raise TableError(f"{self._name} is no Parquet file.") from None

    def _check_types(self, names: Sequence[str]) -> None:
        readable = {*self.plain(names)}
        for name in names:
            if name not in readable:
                raise TableError(
                    f"Column `{name}` is neither number, text nor boolean. Leave it out.", name
                )

    def _leaves(self, names: Sequence[str]) -> Mapping[str, int]:
        """The place of each column among those that the file stores: a nested one is stored as several."""
        found: dict[str, int] = {}
        place = 0
        for each in self.schema:
            found[each.name] = place
            place += _stored(each.type)
        return {name: found[name] for name in names}

    def _chunks(
        self, opened: pq.ParquetFile, group: int, places: Sequence[int], file: int, pages: int
    ) -> list[Chunk]:
        """What each column takes in a row group."""
        found: list[Chunk] = []
        try:
            about = opened.metadata.row_group(group)
            for place in places:
                column = about.column(place)
                start = column.data_page_offset
                if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
                    start = column.dictionary_page_offset
                found.append(chunk_of(file, start, column.total_compressed_size, pages))
                pages -= found[-1].pages
        except EncodingError:
            raise TableError(
                f"{self._name} has texts in the encoding DELTA_BYTE_ARRAY: write them plain."
            ) from None
        except (PagesError, IndexError, OSError, RecursionError, pa.ArrowException):
            raise TableError(f"{self._name} is no Parquet file.") from None
        return found

    def _in_texts(self, batch: pa.RecordBatch, budget: Budget) -> Iterator[pa.Table]:
        """The rows with their texts, in pieces of bounded size."""
        sizes = np.zeros(batch.num_rows, dtype=np.int64)
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if isinstance(column.type, pa.DictionaryType) and _is_text(column.type):
                sizes += self._sizes(name, column)
        start = 0
        for end in _ends(sizes):
            piece = batch.slice(start, end - start)
            budget.charge(size_bytes=int(sizes[start:end].sum()))
            columns = [
                each.dictionary_decode() if isinstance(each, pa.DictionaryArray) else each
                for each in piece.columns
            ]
            yield pa.table(columns, names=batch.schema.names)
            start = end

    def _sizes(self, name: str, column: pa.DictionaryArray) -> np.ndarray:
        """The bytes of each row's text, by the lengths in the dictionary."""
        lengths = np.asarray(pc.fill_null(pc.binary_length(column.dictionary), 0), dtype=np.int64)
        places = pc.fill_null(column.indices.cast(pa.int64()), len(lengths))
        sizes: np.ndarray = np.append(lengths, 0)[np.asarray(places)]
        if sizes.max(initial=0) > MAX_CELL_BYTES:
            raise TableError(
                f"Column `{name}` has a text of {int(sizes.max()):,} bytes; there may be "
                f"{MAX_CELL_BYTES:,}. Leave it out.",
                name,
            )
        return sizes


def _ends(sizes: np.ndarray) -> Iterator[int]:
    """Where the pieces of a batch end, so that the texts of each fit."""
    total = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(total[start - 1]) if start else 0
        end = int(np.searchsorted(total, before + MAX_PIECE_BYTES, side="right"))
        start = max(start + 1, end)
        yield start


def _is_text(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.DictionaryType):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_plain(kind: pa.DataType) -> bool:
    """Whether a value is one number, text, boolean or time, whose size the rows bound."""
    if isinstance(kind, pa.DictionaryType):
        return _is_plain(kind.value_type)
    checks = (
        pa.types.is_boolean,
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_temporal,
        pa.types.is_null,
    )
    return _is_text(kind) or any(check(kind) for check in checks)


def _stored(kind: pa.DataType) -> int:
    """How many columns a file stores for one of this type."""
    if isinstance(kind, pa.DictionaryType):
        return _stored(kind.value_type)
    count = kind.num_fields
    return sum(_stored(kind.field(place).type) for place in range(count)) if count else 1
