"""The columns of a table, checked and frozen, and the slots that they take in a context."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cached_property
from typing import Any

import msgspec
from msgspec import Struct

MAX_COLUMNS = 4096
MAX_LEVELS = 1000
MAX_TEXT = 128  # characters of a name, a unit or a level
MAX_WIDTH = 4096  # slots: a small row must not become a large context
MEASURED, BINARY = "m", "b"  # as `BanditConfig.slot_kinds` writes them
FLOAT32_END = 2.0**128 - 2.0**103  # from here on float32 rounds to infinity
NAMES_SHOWN = 12  # in a message


class ColumnType(StrEnum):
    """What a column holds."""

    NUMERIC = "numeric"
    CATEGORICAL = "categorical"
    BOOLEAN = "boolean"
    ORDINAL = "ordinal"


class TableError(ValueError):
    """A table or a row does not fit; `column` names the place, `row` counts from 0."""

    def __init__(self, detail: str, column: str | None = None, row: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.column = column
        self.row = row

    def __str__(self) -> str:
        return self.detail if self.row is None else f"row {self.row + 1}: {self.detail}"


@contextmanager
def rows_from(first_row: int) -> Iterator[None]:
    """Within, the row of a `TableError` counts from this row of the table."""
    try:
        yield
    except TableError as error:
        if error.row is not None:
            error.row += first_row
        raise


class UnknownColumnError(TableError):
    """A table has a column that is not declared."""


class DeclaredColumn(Struct, frozen=True, forbid_unknown_fields=True):
    """A column as a caller declares it; a sample can tell what is left out."""

    name: str
    type: ColumnType | None = None
    unit: str | None = None
    values: list[str | int] | None = None
    missing: bool | None = None
    fill: float | str | None = None


class Column(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A column with nothing left open; `values` are the levels, `fill` stands for a missing value."""

    name: str
    type: ColumnType
    unit: str | None = None
    values: tuple[str, ...] = ()
    missing: bool = False
    fill: float | str | None = None

    @property
    def value_slots(self) -> int:
        """Slots of its values: a categorical column has one for each level and one for all others."""
        return len(self.values) + 1 if self.type is ColumnType.CATEGORICAL else 1

    @property
    def width(self) -> int:
        """All of its slots; the last one marks a missing value, where it may be missing."""
        return self.value_slots + self.missing

    @property
    def slot_kinds(self) -> str:
        """The kind of each slot: numbers and ranks are measured, all else is 0 or 1."""
        is_measured = self.type in (ColumnType.NUMERIC, ColumnType.ORDINAL)
        return (MEASURED if is_measured else BINARY) * self.value_slots + BINARY * self.missing

    @property
    def ranks(self) -> dict[str, float]:
        """The levels of an ordinal column on a scale from 0 to 1."""
        last = max(1, len(self.values) - 1)
        return {level: rank / last for rank, level in enumerate(self.values)}

    @property
    def filled(self) -> float:
        """What the value slot of a missing number, rank or boolean holds."""
        if self.type is ColumnType.ORDINAL:
            return self.ranks[str(self.fill)]
        return 0.0 if self.fill is None else float(self.fill)

    def expected(self) -> str:
        """What a value may be, for messages."""
        if self.type is ColumnType.NUMERIC:
            allowed = "a finite number that float32 can hold"
        elif self.type is ColumnType.BOOLEAN:
            allowed = "true or false"
        elif self.type is ColumnType.ORDINAL:
            allowed = f"one of {', '.join(self.values)}"
        else:
            allowed = "text or an integer"
        return f"{allowed}, or null" if self.missing else allowed

    def misfit(self, row: int | None = None) -> TableError:
        """The error of a value that the column does not take."""
        return TableError(f"Column `{self.name}` takes {self.expected()}.", self.name, row)

    def absent(self, row: int | None = None) -> TableError:
        """The error of a missing value that the column must have."""
        return TableError(f"Column `{self.name}` may not be missing.", self.name, row)

    def check(self) -> None:
        """Refuse what cannot be a column."""
        _check_text(self.name, "The name of a column", self.name)
        if not self.name.isprintable() or set(self.name) & {'"', "\\"}:
            raise TableError(
                "The name of a column has no control characters, quotes or backslashes.",
                self.name,
            )
        if self.unit is not None:
            _check_text(self.unit, "A unit", self.name)
        self._check_levels()
        self._check_fill()

    def _check_levels(self) -> None:
        has_levels = self.type in (ColumnType.CATEGORICAL, ColumnType.ORDINAL)
        if not has_levels and self.values:
            raise TableError(f"A {self.type} column has no `values`.", self.name)
        if not has_levels:
            return
        least = 2 if self.type is ColumnType.ORDINAL else 1
        if not least <= len(self.values) <= MAX_LEVELS:
            raise TableError(
                f"A {self.type} column has {least} to {MAX_LEVELS} `values`, or a sample that has "
                "them. Leave out identifiers and free text.",
                self.name,
            )
        if len(set(self.values)) != len(self.values):
            raise TableError("The `values` of a column must be unique.", self.name)
        for level in self.values:
            _check_text(level, "A level", self.name)

    def _check_fill(self) -> None:
        if self.fill is None:
            return
        if not self.missing or self.type in (ColumnType.CATEGORICAL, ColumnType.BOOLEAN):
            raise TableError(
                "Only a numeric or ordinal column that may be missing has a `fill`.", self.name
            )
        if self.type is ColumnType.ORDINAL and self.fill not in self.values:
            raise TableError("The `fill` of an ordinal column is one of its values.", self.name)
        if self.type is ColumnType.NUMERIC and not is_float32(self.fill):
            raise TableError("The `fill` of a numeric column is a finite number.", self.name)


class TableSchema(Struct, frozen=True, dict=True):
    """The columns of an experiment, in the order of their slots."""

    columns: tuple[Column, ...]

    def check(self) -> None:
        """Refuse what cannot be a table."""
        if not 1 <= len(self.columns) <= MAX_COLUMNS:
            raise TableError(f"A table has 1 to {MAX_COLUMNS} columns.")
        for column in self.columns:
            column.check()
        check_unique([each.name for each in self.columns])
        if self.width > MAX_WIDTH:
            raise TableError(
                f"A table takes at most {MAX_WIDTH} slots; this one needs {self.width}."
            )

    @cached_property
    def width(self) -> int:
        """Numbers of an encoded row."""
        return sum(each.width for each in self.columns)

    @cached_property
    def slot_kinds(self) -> str:
        """The kind of each slot, for the model."""
        return "".join(each.slot_kinds for each in self.columns)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns by their names."""
        return {each.name: each for each in self.columns}

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first slot of each column."""
        firsts, slot = [], 0
        for column in self.columns:
            firsts.append(slot)
            slot += column.width
        return tuple(firsts)

    def plain(self) -> list[dict[str, Any]]:
        """The columns as JSON values."""
        found: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(self.columns))
        return found

    @classmethod
    def from_plain(cls, columns: object) -> "TableSchema":
        """The schema that `plain` gave; a ValueError if it is none."""
        schema = cls(msgspec.convert(columns, tuple[Column, ...]))
        schema.check()
        return schema

    def check_names(self, names: Sequence[str]) -> None:
        """Refuse names that are no columns, and the absence of a column that may not be missing."""
        for name in names:
            if name not in self.by_name:
                shown = f"{name[:MAX_TEXT]}" if name else "(empty)"
                known = shown_names([*self.by_name])
                raise UnknownColumnError(f"Unknown column `{shown}`. Columns: {known}.", name)
        given = set(names)
        for column in self.columns:
            if not column.missing and column.name not in given:
                raise TableError(f"Column `{column.name}` is missing.", column.name)


def shown_names(names: Sequence[str]) -> str:
    """Names for a message, at most a dozen."""
    rest = len(names) - NAMES_SHOWN
    return ", ".join(name[:MAX_TEXT] for name in names[:NAMES_SHOWN]) + (
        f" and {rest} more" if rest > 0 else ""
    )


def absent_column(name: str, place: str, known: Sequence[str]) -> TableError:
    """A name that no column has, beside those that are there."""
    detail = (
        f"There is no column `{name[:MAX_TEXT]}` in {place}. Its columns: {shown_names(known)}."
    )
    return TableError(detail, name)


def check_unique(names: Sequence[str]) -> None:
    """Refuse names that are there twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TableError(f"Column names must be unique; `{name[:MAX_TEXT]}` is not.", name)
        seen.add(name)


def is_float32(value: object) -> bool:
    """Whether this is a number that float32 holds as a finite one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) < FLOAT32_END  # type: ignore[arg-type]  # it is a number


def _check_text(text: str, what: str, column: str) -> None:
    if not 1 <= len(text) <= MAX_TEXT or "\0" in text:
        raise TableError(f"{what} has 1 to {MAX_TEXT} characters.", column[:MAX_TEXT])
