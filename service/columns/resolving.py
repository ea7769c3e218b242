"""From declared columns and a label-free sample to a schema with nothing left open."""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from service.columns.schema import (
    MAX_COLUMNS,
    Column,
    ColumnType,
    DeclaredColumn,
    TableError,
    TableSchema,
    check_unique,
)

MAX_SAMPLE = 1000

Row = Mapping[str, object]


def resolved(declared: Sequence[DeclaredColumn] | None, sample: Sequence[Row] = ()) -> TableSchema:
    """The schema of declared columns, or of those that the sample's rows have.

    The sample tells types, levels, what may be missing and what is filled in, as far as that is not declared.
    """
    if declared is None:
        names = dict.fromkeys(name for row in sample for name in row)
        if not names:
            raise TableError("A table declares `columns`, or sends a `sample` that has them.")
        declared = [DeclaredColumn(name) for name in names]
    # Before anything is read of the sample, column by column.
    if not 1 <= len(declared) <= MAX_COLUMNS:
        raise TableError(f"A table has 1 to {MAX_COLUMNS} columns; there are {len(declared)}.")
    check_unique([each.name for each in declared])
    columns = [_resolved(each, [row.get(each.name) for row in sample]) for each in declared]
    schema = TableSchema(tuple(columns))
    schema.check()
    return schema


def is_missing(value: object) -> bool:
    """Null, an empty text and NaN mean that there is no value."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _resolved(declared: DeclaredColumn, values: Sequence[object]) -> Column:
    present = [each for each in values if not is_missing(each)]
    kind = declared.type or _type_of(declared.name, present)
    missing = len(present) < len(values) if declared.missing is None else declared.missing
    levels = _levels(declared, kind, present)
    fill = declared.fill
    if fill is None and missing:
        fill = _fill(kind, levels, present, declared.name)
    return Column(declared.name, kind, declared.unit, levels, missing, fill)


def _type_of(name: str, present: Sequence[object]) -> ColumnType:
    kinds = {type(each) for each in present}
    if not kinds:
        raise TableError(
            f"Column `{name}` has no value in the sample. Declare its type, or leave it out.", name
        )
    if kinds == {bool}:
        return ColumnType.BOOLEAN
    if kinds <= {int, float}:
        return ColumnType.NUMERIC
    if kinds == {str}:
        return ColumnType.CATEGORICAL
    raise TableError(f"Column `{name}` mixes types in the sample. Declare its type.", name)


def _levels(
    declared: DeclaredColumn, kind: ColumnType, present: Iterable[object]
) -> tuple[str, ...]:
    if declared.values is not None:
        return tuple(str(each) for each in declared.values)
    if kind is not ColumnType.CATEGORICAL:
        return ()
    return tuple(sorted({str(each) for each in present}))


def _fill(
    kind: ColumnType, levels: Sequence[str], present: Sequence[object], name: str
) -> float | str | None:
    """The median of the sample; without one, 0 or the level in the middle."""
    if kind is ColumnType.ORDINAL and levels:
        ranks = sorted(levels.index(str(each)) for each in present if str(each) in levels)
        return levels[ranks[(len(ranks) - 1) // 2] if ranks else (len(levels) - 1) // 2]
    if kind is not ColumnType.NUMERIC:
        return None
    numbers = [each for each in present if type(each) in (int, float)]
    if len(numbers) < len(present):
        raise TableError(f"Column `{name}` is not numeric in the sample.", name)
    return float(np.median(np.array(numbers, dtype=np.float64))) if numbers else 0.0
