"""Data frames of pandas and polars as rows of a table: names of columns to values."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from daband_client.contexts import installed
from daband_client.errors import ContextError

Row = dict[str, Any]
LEVELS = frozenset({"categorical", "ordinal"})


def is_frame(given: Any) -> bool:
    """Whether this is a data frame, or a row of one that knows the names of its columns."""
    has_columns = hasattr(given, "__arrow_c_stream__") and hasattr(given, "columns")
    return has_columns or _is_named_row(given)


def frame_rows(given: Any, columns: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows as an experiment with these columns takes them; a missing value is None."""
    named = {each["name"] for each in columns if each["type"] in LEVELS}
    rows = [dict(given.items())] if _is_named_row(given) else _listed(given)
    return [{name: _value(value, name in named) for name, value in row.items()} for row in rows]


def _is_named_row(given: Any) -> bool:
    """A Series of pandas has labels; that of polars has none, and is no row."""
    return all(hasattr(given, name) for name in ("items", "index", "dtype"))


def _listed(frame: Any) -> list[Row]:
    if (arrow := installed("pyarrow")) is None:
        raise ContextError("a data frame can be sent when pyarrow is installed")
    try:
        table = arrow.table(frame)
    except (arrow.ArrowException, ValueError) as error:
        # Of a bad value Arrow says first what it is, which belongs in no log, and last where it is.
        raise ContextError(f"a data frame cannot be read: {error.args[-1]}") from error
    # pandas appends its index as further columns.
    rows: list[Row] = table.select(list(range(len(frame.columns)))).to_pylist()
    return rows


def _value(value: Any, is_level: bool) -> Any:
    plain = value.item() if hasattr(value, "item") else value  # a number of numpy
    if plain is None or _is_not_itself(plain):
        return None
    # pandas makes floats of integers where one is missing; a level is named by its digits.
    is_integer = is_level and isinstance(plain, float) and math.isfinite(plain)
    return int(plain) if is_integer and plain.is_integer() else plain


def _is_not_itself(value: Any) -> bool:
    """NaN, NaT and NA, of which the last does not even compare."""
    try:
        return bool(value != value)
    except TypeError:
        return True
