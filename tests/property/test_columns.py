"""A row from JSON, one from msgpack and a whole Arrow table are encoded to the same bytes."""

from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given, strategies as st

from service.columns.arrow import encode_table
from service.columns.rows import RowPlan
from service.columns.schema import Column, ColumnType, TableSchema

TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
NAMES = TEXTS.filter(lambda name: name.isprintable() and not set(name) & {'"', "\\"})
NUMBERS = st.one_of(
    st.floats(-3e38, 3e38),
    st.integers(-(2**62), 2**62),
    st.sampled_from([0, -0.0, 1e-46, 16777217]),
)
ARROW = {
    ColumnType.NUMERIC: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.CATEGORICAL: pa.string(),
    ColumnType.ORDINAL: pa.string(),
}


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    kind, missing = draw(st.sampled_from([*ColumnType])), draw(st.booleans())
    levels: tuple[str, ...] = ()
    fill: float | str | None = None
    if kind in (ColumnType.CATEGORICAL, ColumnType.ORDINAL):
        least = 2 if kind is ColumnType.ORDINAL else 1
        levels = tuple(draw(st.lists(TEXTS, min_size=least, max_size=5, unique=True)))
    if missing and kind is ColumnType.ORDINAL:
        fill = draw(st.sampled_from(levels))
    if missing and kind is ColumnType.NUMERIC:
        fill = draw(st.floats(-1e30, 1e30))
    return Column(name, kind, None, levels, missing, fill)


def values(column: Column) -> st.SearchStrategy[Any]:
    found: dict[ColumnType, st.SearchStrategy[Any]] = {
        ColumnType.NUMERIC: NUMBERS,
        ColumnType.BOOLEAN: st.booleans(),
        ColumnType.CATEGORICAL: TEXTS,
        ColumnType.ORDINAL: TEXTS,
    }
    some = found[column.type]
    if column.values:
        known = st.sampled_from(column.values)
        some = known if column.type is ColumnType.ORDINAL else known | some
    if column.missing:
        some |= st.none() | (st.just("") if column.values else st.none())
    return some


@st.composite
def tables(draw: st.DrawFn) -> tuple[TableSchema, list[dict[str, Any]]]:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    schema = TableSchema(tuple(draw(columns(name)) for name in names))
    schema.check()
    row = st.fixed_dictionaries({each.name: values(each) for each in schema.columns})
    return schema, draw(st.lists(row, min_size=1, max_size=6))


@given(tables())
def test_rows_and_tables_are_encoded_to_the_same_bytes(table: Any) -> None:
    schema, rows = table
    plan = RowPlan(schema)
    one_by_one = b"".join(plan.row(msgspec.json.encode(row)).tobytes() for row in rows)
    packed = [plan.row(msgspec.msgpack.encode(row), is_msgpack=True).tobytes() for row in rows]
    assert b"".join(packed) == one_by_one
    assert plan.rows(msgspec.json.encode(rows)).tobytes() == one_by_one
    arrays = {
        each.name: pa.array(
            [
                float(row[each.name]) if type(row[each.name]) is int else row[each.name]
                for row in rows
            ],
            ARROW[each.type],
        )
        for each in schema.columns
    }
    assert encode_table(schema, pa.table(arrays)).tobytes() == one_by_one
