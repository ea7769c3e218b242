import math

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from service.columns.arrow import encode_table
from service.columns.resolving import resolved
from service.columns.rows import RowPlan, encoded_rows
from service.columns.schema import ColumnType, DeclaredColumn, TableError, rows_from
from tests.support.tables import BAD_ROWS, ENCODED, MICE, MOUSE

PLAN = RowPlan(MICE)


def json(row: object) -> bytes:
    return msgspec.json.encode(row)


@pytest.mark.parametrize(
    ("changes", "encoded"),
    [
        ({}, ENCODED),
        ({"age": None}, [40.0, 1.0, *ENCODED[2:]]),
        ({"strain": "BALB"}, [*ENCODED[:2], 0.0, 1.0, 0.0, *ENCODED[5:]]),
        ({"strain": "wild"}, [*ENCODED[:2], 0.0, 0.0, 1.0, *ENCODED[5:]]),
        ({"treated_before": 0}, [*ENCODED[:5], 0.0, *ENCODED[6:]]),
        ({"stage": "III"}, [*ENCODED[:6], 1.0, 0.0]),
        ({"stage": ""}, [*ENCODED[:6], 0.5, 1.0]),
    ],
)
def test_a_row_is_encoded(changes, encoded):
    row = {**MOUSE, **changes}
    assert PLAN.row(json(row)).tolist() == encoded
    assert PLAN.row(msgspec.msgpack.encode(row), is_msgpack=True).tolist() == encoded
    assert PLAN.rows(json([row, MOUSE])).tolist() == [encoded, ENCODED]
    assert PLAN.lines([json(row), json(MOUSE)]).tolist() == [encoded, ENCODED]
    assert encode_table(MICE, pa.Table.from_pylist([row])).tolist() == [encoded]


def test_an_absent_column_is_missing_where_it_may_be():
    row = {"strain": "B6", "treated_before": False}
    assert PLAN.row(json(row)).tolist() == [40.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.5, 1.0]
    assert encode_table(MICE, pa.Table.from_pylist([row])).tolist() == [
        PLAN.row(json(row)).tolist()
    ]


def test_a_number_of_msgpack_may_be_missing_as_nan():
    content = msgspec.msgpack.encode({**MOUSE, "age": math.nan})
    assert PLAN.row(content, is_msgpack=True).tolist()[:2] == [40.0, 1.0]


def test_an_integer_names_a_level_by_its_digits():
    schema = resolved([DeclaredColumn("site", ColumnType.CATEGORICAL, values=[3, "-1", "07"])])
    plan = RowPlan(schema)
    for value, place in [(3, 0), ("3", 0), (-1, 1), (7, 3), ("07", 2), (10**30, 3)]:
        assert plan.row(json({"site": value})).argmax() == place
    floats = pa.table({"site": pa.array([3.0, -1.0, 7.0])})
    assert encode_table(schema, floats).argmax(axis=1).tolist() == [0, 1, 3]


@pytest.mark.parametrize(("row", "column", "reason"), BAD_ROWS)
def test_a_row_that_does_not_fit_names_its_column(row, column, reason):
    for is_msgpack in (False, True):
        content = msgspec.msgpack.encode(row) if is_msgpack else json(row)
        with pytest.raises(TableError, match=reason) as caught:
            PLAN.row(content, is_msgpack=is_msgpack)
        assert caught.value.column == column
    with pytest.raises(TableError):
        PLAN.rows(json([MOUSE, row]))
    with pytest.raises(TableError, match=f"row 2: .*{reason}") as caught:
        encoded_rows(PLAN, [MOUSE, row])
    assert (caught.value.row, caught.value.column) == (1, column)


@pytest.mark.parametrize("content", [b"[1]", b"3", b"null", b"{", b"", b'{"age":' + b"[" * 10_000])
def test_what_is_no_row_is_refused(content):
    with pytest.raises(TableError, match="object of columns"):
        PLAN.row(content)


def test_no_message_holds_a_value():
    for row, column, _ in BAD_ROWS:
        with pytest.raises(TableError) as caught:
            PLAN.row(json({**row, **({"age": "secret"} if column == "age" else {})}))
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("row", "column", "reason"), BAD_ROWS)
def test_a_bad_column_of_a_whole_table_is_named_with_its_row(row, column, reason):
    is_of_one_type = type(row.get(column)) in (type(MOUSE.get(column)), type(None), float)
    rows = [MOUSE, MOUSE, row] if row.keys() == MOUSE.keys() and is_of_one_type else [row] * 3
    table = pa.Table.from_pylist([{**each, "strain": row.get("strain")} for each in rows])
    with pytest.raises(TableError, match=reason) as caught, rows_from(10):
        encode_table(MICE, table)
    assert caught.value.column == column
    assert caught.value.row in (None, 10, 12)


def test_a_column_that_is_there_twice_is_refused():
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["age", "age"])
    with pytest.raises(TableError, match="must be unique"):
        encode_table(MICE, table)


def test_a_table_of_missing_values_is_encoded_where_they_may_be_missing():
    schema = resolved(
        [
            DeclaredColumn("a", ColumnType.NUMERIC, missing=True, fill=2.0),
            DeclaredColumn("b", ColumnType.BOOLEAN, missing=True),
            DeclaredColumn("c", ColumnType.CATEGORICAL, values=["x"], missing=True),
        ]
    )
    table = pa.table({name: pa.nulls(2) for name in "abc"})
    expected = RowPlan(schema).rows(json([{}, {"a": None, "b": None, "c": None}]))
    np.testing.assert_array_equal(encode_table(schema, table), expected)
    assert expected[0].tolist() == [2.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.decimal128(9, 2)])
def test_numbers_of_all_types_are_read(kind):
    schema = resolved([DeclaredColumn("a", ColumnType.NUMERIC, missing=True)])
    table = pa.table({"a": pa.array([1, None], kind)})
    assert encode_table(schema, table).tolist() == [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_texts_of_all_types_are_read(kind):
    schema = resolved([DeclaredColumn("a", ColumnType.CATEGORICAL, values=["x"], missing=True)])
    table = pa.table({"a": pa.array(["x", None, "y"], kind)})
    assert encode_table(schema, table).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
