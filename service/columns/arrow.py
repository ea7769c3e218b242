"""Whole Arrow tables to slots, with the very bytes that the rows give one by one."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model import Floats
from service.columns.schema import FLOAT32_END, Column, ColumnType, TableSchema, check_unique

PIECE = 8192  # rows

Values = np.ndarray  # of one column, (n,)


def encode_table(schema: TableSchema, table: pa.Table) -> Floats:
    """The slots (n, d) of a table."""
    check_unique(table.column_names)
    schema.check_names(table.column_names)
    slots = np.zeros((table.num_rows, schema.width), dtype=np.float32)
    given = set(table.column_names)
    for column, start in zip(schema.columns, schema.starts, strict=True):
        part = slots[:, start : start + column.width]
        if column.name in given:
            _put(column, part, table.column(column.name))
        else:
            _put_missing(column, part, np.ones(len(part), dtype=np.bool_))
    return slots


def _put(column: Column, slots: Floats, values: pa.ChunkedArray) -> None:
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    if pa.types.is_null(values.type):
        values = values.cast(pa.string())
    if column.type is ColumnType.NUMERIC:
        _put_numbers(column, slots, values)
    elif column.type is ColumnType.BOOLEAN:
        _put_booleans(column, slots, values)
    else:
        _put_levels(column, slots, values)


def _put_numbers(column: Column, slots: Floats, values: pa.ChunkedArray) -> None:
    if pa.types.is_boolean(values.type):
        refuse(column, np.asarray(pc.is_valid(values)))
    numbers, is_null = numbers_of(column, values)
    refuse(column, ~(np.abs(numbers) < FLOAT32_END))
    slots[:, 0] = numbers
    _put_missing(column, slots, is_null)


def _put_booleans(column: Column, slots: Floats, values: pa.ChunkedArray) -> None:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    numbers, is_null = numbers_of(column, values)  # 0 and 1 are booleans, too
    refuse(column, (numbers != 0) & (numbers != 1))
    slots[:, 0] = numbers
    _put_missing(column, slots, is_null)


def numbers_of(column: Column, values: pa.ChunkedArray) -> tuple[Values, Values]:
    """The numbers (n,) as float64, and which of them are missing and 0 here."""
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        refuse(column, np.asarray(pc.is_valid(values)))
        kind = pa.float64()
    if not pa.types.is_integer(kind):
        values, kind = values.cast(pa.float64()), pa.float64()
    is_null = np.asarray(pc.is_null(values, nan_is_null=True))
    # Integers by way of float64, as in JSON: twice rounded is not once rounded.
    numbers = np.asarray(pc.fill_null(values, pa.scalar(0, kind))).astype(np.float64)
    return np.where(is_null, 0.0, numbers), is_null


def _put_levels(column: Column, slots: Floats, values: pa.ChunkedArray) -> None:
    texts = text_of(column, values)
    is_null = np.asarray(pc.fill_null(pc.equal(texts, ""), fill_value=True))
    places = np.asarray(
        pc.fill_null(pc.index_in(texts, pa.array(column.values, pa.string())), len(column.values))
    )
    if column.type is ColumnType.ORDINAL:
        refuse(column, ~is_null & (places == len(column.values)))
        slots[:, 0] = np.array([*column.ranks.values(), 0.0])[places]
    else:
        rows = np.flatnonzero(~is_null)
        slots[rows, places[rows]] = 1.0
    _put_missing(column, slots, is_null)


def text_of(column: Column, values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text, or the digits of integers, which may stand as floats where some are missing."""
    kind = values.type
    if pa.types.is_floating(kind):
        # Integers, of which pandas makes floats where a value is missing.
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, kind), values)
        numbers = np.asarray(pc.fill_null(values, 0.0))
        refuse(column, (numbers != np.trunc(numbers)) | ~(np.abs(numbers) < 2.0**53))
        return values.cast(pa.int64()).cast(pa.string())
    if pa.types.is_integer(kind) or pa.types.is_large_string(kind):
        return values.cast(pa.string())
    if not pa.types.is_string(kind):
        refuse(column, np.asarray(pc.is_valid(values)))
        return values.cast(pa.string())
    return values


def _put_missing(column: Column, slots: Floats, is_missing: Values) -> None:
    if not is_missing.any():
        return
    if not column.missing:
        raise column.absent(int(np.argmax(is_missing)))
    if column.type is not ColumnType.CATEGORICAL:
        slots[is_missing, 0] = column.filled
    slots[is_missing, -1] = 1.0


def plain_values(values: pa.ChunkedArray) -> Iterator[Any]:
    """The values for Python, made in pieces: other threads wait for the making of one."""
    for start in range(0, len(values), PIECE):
        yield from values.slice(start, PIECE).to_pylist()


def refuse(column: Column, is_bad: Values) -> None:
    """Refuse the first bad value, by its row."""
    if is_bad.any():
        raise column.misfit(int(np.argmax(is_bad)))
