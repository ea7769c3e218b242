"""One row at a time: a compiled plan from the columns of a JSON or msgpack object to float32 slots."""

from array import array as packed_array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from model import Floats, checked_contexts
from service.columns.resolving import is_missing
from service.columns.schema import Column, ColumnType, TableError, TableSchema, is_float32

# What may stand in a row, by the type of its column. An integer names a level by its digits.
_ACCEPTED: Mapping[ColumnType, Any] = {
    ColumnType.NUMERIC: float,
    ColumnType.CATEGORICAL: str | int,
    ColumnType.ORDINAL: str | int,
    ColumnType.BOOLEAN: bool | Literal[0, 1],
}
# Writes a value into the slots of a row.
_Put = Callable[[list[float], Any], None]


class RowPlan:
    """Decodes and encodes rows of a schema; whatever does not fit is a `TableError`.

    Rows are decoded into a struct made for the schema: names, types and absence are checked in C.
    """

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self._kind = _struct(schema)
        self._json = msgspec.json.Decoder(self._kind)
        self._msgpack = msgspec.msgpack.Decoder(self._kind)
        self._many_json = msgspec.json.Decoder(list[self._kind])  # type: ignore[name-defined]
        self._many_msgpack = msgspec.msgpack.Decoder(list[self._kind])  # type: ignore[name-defined]
        self._empty = [0.0] * schema.width
        self._puts = [
            (_put_level if column.type is ColumnType.CATEGORICAL else _put_value)(column, start)
            for column, start in zip(schema.columns, schema.starts, strict=True)
        ]

    def row(self, content: bytes, *, is_msgpack: bool = False) -> Floats:
        """The slots (d,) of one encoded object."""
        try:
            row = (self._msgpack if is_msgpack else self._json).decode(content)
            slots = np.frombuffer(packed_array("f", self._slots(row)), dtype=np.float32)
            checked_contexts(slots, slots.shape)  # the log keeps what was sent, as of vectors
        except (ValueError, KeyError, RecursionError):
            raise self._reason(content, is_msgpack) from None
        return slots

    def rows(self, content: bytes, *, is_msgpack: bool = False) -> Floats:
        """The slots (n, d) of an encoded list of objects; the error does not say which is bad."""
        decoder = self._many_msgpack if is_msgpack else self._many_json
        return self._joined(lambda: decoder.decode(content))

    def lines(self, lines: Sequence[bytes]) -> Floats:
        """The slots (n, d) of JSON objects, one a line; the error does not say which is bad."""
        return self._joined(lambda: map(self._json.decode, lines))

    def _joined(self, decode: Callable[[], Iterable[Struct]]) -> Floats:
        try:
            values = [self._slots(row) for row in decode()]
            with np.errstate(over="ignore"):
                slots = np.array(values, dtype=np.float32).reshape(len(values), self.schema.width)
            checked_contexts(slots, (self.schema.width,))
        except (ValueError, KeyError, RecursionError):
            raise TableError("A row does not fit the columns.") from None
        return slots

    def check_row(self, values: Mapping[str, object]) -> None:
        """Say which column of a row does not fit, and what it takes."""
        self.schema.check_names(list(values))
        for name, value in values.items():
            check_value(self.schema.by_name[name], value)

    def _slots(self, row: Struct) -> list[float]:
        slots = self._empty.copy()
        for put, value in zip(self._puts, astuple(row), strict=True):
            put(slots, value)
        return slots

    def _reason(self, content: bytes, is_msgpack: bool) -> TableError:
        decode = msgspec.msgpack.decode if is_msgpack else msgspec.json.decode
        try:
            self.check_row(decode(content, type=dict[str, Any]))
        except TableError as reason:
            return reason
        except (ValueError, RecursionError):
            pass
        return TableError("Expected an object of columns.")


def check_value(column: Column, value: object) -> None:
    """Refuse a value that the column does not take."""
    if is_missing(value):
        if not column.missing:
            raise column.absent()
        return
    if column.type is ColumnType.NUMERIC:
        fits = is_float32(value)
    elif column.type is ColumnType.BOOLEAN:
        fits = isinstance(value, int) and value in (0, 1)
    else:
        fits = isinstance(value, str | int) and not isinstance(value, bool)
        if column.type is ColumnType.ORDINAL:
            fits = fits and str(value) in column.values
    if not fits:
        raise column.misfit()


def _struct(schema: TableSchema) -> type[Struct]:
    """A struct with a field for each column, found under the column's name."""
    fields: list[Any] = []
    names: dict[str, str] = {}
    for number, column in enumerate(schema.columns):
        field, kind = f"c{number}", _ACCEPTED[column.type]
        names[field] = column.name
        fields.append((field, kind | None, None) if column.missing else (field, kind))
    return msgspec.defstruct(
        "Row", fields, rename=names, forbid_unknown_fields=True, kw_only=True, gc=False
    )


def _put_value(column: Column, slot: int) -> _Put:
    ranks = _by_value(column.ranks) if column.type is ColumnType.ORDINAL else None
    missing, filled = column.missing, column.filled if column.missing else 0.0

    def put(slots: list[float], value: Any) -> None:
        # NaN, which msgpack can send, is missing as well.
        if missing and (value is None or value == "" or value != value):
            slots[slot], slots[slot + 1] = filled, 1.0
        else:
            slots[slot] = value if ranks is None else ranks[value]

    return put


def _put_level(column: Column, start: int) -> _Put:
    places = {level: start + place for place, level in enumerate(column.values)}
    found: dict[Any, int] = _by_value(places)
    other = start + len(column.values)
    if column.missing:
        found[None] = found[""] = other + 1

    def put(slots: list[float], value: Any) -> None:
        if value == "" and not column.missing:
            raise column.absent()
        slots[found.get(value, other)] = 1.0

    return put


def _by_value(found: Mapping[str, Any]) -> dict[Any, Any]:
    """The same also by integers, whose digits name a level."""
    integers = {int(level): value for level, value in found.items() if _is_integer(level)}
    return {**found, **integers}


def _is_integer(level: str) -> bool:
    return level.removeprefix("-").isdecimal() and str(int(level)) == level


def encoded_rows(plan: RowPlan, rows: Sequence[Mapping[str, object]]) -> Floats:
    """The slots (n, d) of rows at hand, each checked."""
    for number, row in enumerate(rows):
        try:
            plan.check_row(row)
        except TableError as error:
            raise TableError(error.detail, error.column, number) from None
    return plan.rows(msgspec.msgpack.encode(rows), is_msgpack=True)
