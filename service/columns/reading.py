"""Rows of a table back from their slots, as people read them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from service.columns.schema import Column, ColumnType, TableSchema

OTHER = "(other)"  # a level that was not declared: the slots do not say which

Value = str | float | bool | None


def row_of(schema: TableSchema, slots: Sequence[float]) -> dict[str, Value]:
    """The value of each column; None for a missing one."""
    return {
        column.name: _value(column, slots[start : start + column.width])
        for column, start in zip(schema.columns, schema.starts, strict=True)
    }


def _value(column: Column, slots: Sequence[float]) -> Value:
    if column.missing and slots[-1]:
        return None
    if column.type is ColumnType.CATEGORICAL:
        return (*column.values, OTHER)[int(np.argmax(slots))]
    if column.type is ColumnType.BOOLEAN:
        return bool(slots[0])
    if column.type is ColumnType.ORDINAL:
        return min(column.ranks, key=lambda level: abs(column.ranks[level] - slots[0]))
    number: Any = np.float32(slots[0])
    return float(str(number))  # the shortest text: 0.1, not 0.10000000149
