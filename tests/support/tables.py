"""A table of mice that the tests share."""

from typing import Any

from service.columns.resolving import resolved
from service.columns.schema import ColumnType, DeclaredColumn

COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "numeric", "unit": "years", "missing": True, "fill": 40},
    {"name": "strain", "type": "categorical", "values": ["B6", "BALB"]},
    {"name": "treated_before", "type": "boolean"},
    {"name": "stage", "type": "ordinal", "values": ["I", "II", "III"], "missing": True},
]
MICE = resolved(
    [
        DeclaredColumn("age", ColumnType.NUMERIC, "years", missing=True, fill=40.0),
        DeclaredColumn("strain", ColumnType.CATEGORICAL, values=["B6", "BALB"]),
        DeclaredColumn("treated_before", ColumnType.BOOLEAN),
        DeclaredColumn("stage", ColumnType.ORDINAL, values=["I", "II", "III"], missing=True),
    ]
)
SAMPLE: list[dict[str, Any]] = [
    {"age": 30, "strain": "B6", "treated_before": False},
    {"age": None, "strain": "BALB", "treated_before": True},
    {"age": 40.0, "strain": "", "treated_before": True},
]
MOUSE: dict[str, Any] = {"age": 41, "strain": "B6", "treated_before": True, "stage": "II"}
ENCODED = [41.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.5, 0.0]
# Rows that do not fit, the column that is to blame and what is said.
BAD_ROWS: list[tuple[dict[str, Any], str, str]] = [
    ({**MOUSE, "tail": 3}, "tail", "Unknown column `tail`"),
    ({"age": 41, "strain": "B6"}, "treated_before", "`treated_before` is missing"),
    ({**MOUSE, "age": "41"}, "age", "takes a finite number"),
    ({**MOUSE, "age": True}, "age", "takes a finite number"),
    ({**MOUSE, "age": 1e39}, "age", "takes a finite number"),
    ({**MOUSE, "age": [1]}, "age", "takes a finite number"),
    ({**MOUSE, "strain": None}, "strain", "may not be missing"),
    ({**MOUSE, "strain": ""}, "strain", "may not be missing"),
    ({**MOUSE, "strain": 1.5}, "strain", "takes text or an integer"),
    ({**MOUSE, "treated_before": "yes"}, "treated_before", "takes true or false"),
    ({**MOUSE, "treated_before": 2}, "treated_before", "takes true or false"),
    ({**MOUSE, "stage": "IV"}, "stage", "takes one of I, II, III, or null"),
    ({**MOUSE, "stage": False}, "stage", "takes one of I, II, III, or null"),
]
