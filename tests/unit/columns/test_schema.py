import pytest

from service.columns.resolving import resolved
from service.columns.schema import (
    MAX_COLUMNS,
    Column,
    ColumnType,
    DeclaredColumn,
    TableError,
    TableSchema,
)
from tests.support.tables import MICE, SAMPLE

Declared = DeclaredColumn


def test_each_column_takes_the_slots_of_its_type():
    assert [(each.name, each.width) for each in MICE.columns] == [
        ("age", 2),
        ("strain", 3),
        ("treated_before", 1),
        ("stage", 2),
    ]
    assert MICE.slot_kinds == "mbbbbbmb"
    assert MICE.starts == (0, 2, 5, 6)
    assert MICE.width == 8


def test_a_schema_survives_json():
    assert TableSchema.from_plain(MICE.plain()) == MICE
    assert MICE.plain()[1] == {"name": "strain", "type": "categorical", "values": ["B6", "BALB"]}


def test_a_sample_tells_all_that_is_not_declared():
    found = resolved(None, SAMPLE)
    assert found.columns == (
        Column("age", ColumnType.NUMERIC, missing=True, fill=35.0),
        Column("strain", ColumnType.CATEGORICAL, values=("B6", "BALB"), missing=True),
        Column("treated_before", ColumnType.BOOLEAN),
    )


def test_what_is_declared_wins_over_the_sample():
    age = Declared("age", unit="years", missing=True, fill=1.0)
    strain = Declared("strain", ColumnType.CATEGORICAL, values=["X", 7], missing=True)
    found = resolved([age, strain], SAMPLE)
    assert found.columns == (
        Column("age", ColumnType.NUMERIC, "years", missing=True, fill=1.0),
        Column("strain", ColumnType.CATEGORICAL, values=("X", "7"), missing=True),
    )


@pytest.mark.parametrize(
    ("values", "fill"), [(["III", "I", "III", None], "III"), ([None], "II"), (["I", "II"], "I")]
)
def test_a_missing_level_is_filled_by_the_median(values, fill):
    stage = Declared("stage", ColumnType.ORDINAL, values=["I", "II", "III"], missing=True)
    assert resolved([stage], [{"stage": each} for each in values]).columns[0].fill == fill


BAD = [
    ([], "1 to 4096 columns"),
    ([Declared(f"c{n}", ColumnType.NUMERIC) for n in range(MAX_COLUMNS + 1)], "1 to 4096 columns"),
    ([Declared("a", ColumnType.NUMERIC)] * 2, "must be unique"),
    ([Declared("a")], "no value in the sample"),
    ([Declared("", ColumnType.NUMERIC)], "1 to 128 characters"),
    ([Declared('a"b', ColumnType.NUMERIC)], "no control characters, quotes"),
    ([Declared("a\\b", ColumnType.NUMERIC)], "no control characters, quotes"),
    ([Declared("a\nb", ColumnType.NUMERIC)], "no control characters, quotes"),
    ([Declared("a" * 129, ColumnType.NUMERIC)], "1 to 128 characters"),
    ([Declared("a", ColumnType.NUMERIC, unit="x" * 129)], "1 to 128 characters"),
    ([Declared("a", ColumnType.NUMERIC, values=[1])], "no `values`"),
    ([Declared("a", ColumnType.CATEGORICAL)], "1 to 1000 `values`"),
    ([Declared("a", ColumnType.CATEGORICAL, values=[*range(1001)])], "1 to 1000 `values`"),
    ([Declared("a", ColumnType.ORDINAL, values=["x"])], "2 to 1000 `values`"),
    ([Declared("a", ColumnType.CATEGORICAL, values=[1, "1"])], "must be unique"),
    ([Declared("a", ColumnType.CATEGORICAL, values=[""])], "1 to 128 characters"),
    ([Declared("a", ColumnType.NUMERIC, fill=1.0)], "may be missing"),
    ([Declared("a", ColumnType.BOOLEAN, missing=True, fill=1.0)], "may be missing"),
    ([Declared("a", ColumnType.NUMERIC, missing=True, fill="x")], "finite number"),
    ([Declared("a", ColumnType.NUMERIC, missing=True, fill=1e39)], "finite number"),
    ([Declared("a", ColumnType.ORDINAL, values=["x", "y"], missing=True, fill="z")], "one of"),
    (
        [
            Declared(f"c{n}", ColumnType.CATEGORICAL, values=[*range(1000)])
            for n in range(MAX_COLUMNS // 50)
        ],
        "at most 4096 slots",
    ),
]


@pytest.mark.parametrize(("columns", "reason"), BAD)
def test_what_cannot_be_a_table_is_refused(columns, reason):
    with pytest.raises(TableError, match=reason):
        resolved(columns)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([None, "", float("nan")], "no value in the sample"),
        ([1, "x"], "mixes types"),
        ([True, 1], "mixes types"),
        ([f"subject {n}" for n in range(1001)], "identifiers and free text"),
    ],
)
def test_a_sample_that_tells_no_column_is_refused(values, reason):
    with pytest.raises(TableError, match=reason):
        resolved(None, [{"a": each} for each in values])


def test_there_is_no_table_without_columns():
    with pytest.raises(TableError, match="declares `columns`"):
        resolved(None)
