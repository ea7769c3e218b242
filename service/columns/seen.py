"""What the values of one column are, file by file: the column to declare, and how the files differ in it."""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.columns.arrow import plain_values
from service.columns.ranges import ordered_ranges
from service.columns.schema import MAX_LEVELS, MAX_TEXT, Column, ColumnType, TableError

NUMBERS_KEPT = 65_536  # of a column of a file, for its median
NUMBERS_IN_ALL = 1 << 23  # of all columns of a file, 64 MiB
# Chosen on pairs of warfarin sites other than those of docs/results.md.
MOST_GAP = 0.5  # between the missing shares of two tables; a column beyond it cannot transfer
NOTED_SHARE = 0.2  # from here on a difference between two tables is worth a remark
TWO = 2  # levels that have an order, whichever it is
_NUMBER = re.compile(
    r"[<>]?=?\s*[+-]?(\d{1,3}([,.' ]\d{3})+([.,]\d+)?|\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?\s*%?"
)
_DATE = re.compile(r"(\d{4}-\d{1,2}-\d{1,2}|\d{1,2}([./-])\d{1,2}\2(\d{4}|\d{2}))([ T]\d.*)?")
FEW_ROWS = 20  # too few to say that a text differs in most of them


@dataclass(frozen=True, slots=True)
class ColumnTypes:
    """What is known of columns beforehand; an ordinal column has its levels from low to high."""

    categorical: Collection[str] = ()
    numeric: Collection[str] = ()
    ordinal: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def check(self, names: Collection[str]) -> None:
        """Refuse names that are no columns, and two types for one."""
        given = [*self.categorical, *self.numeric, *self.ordinal]
        for name in given:
            if name not in names:
                raise TableError(f"There is no column `{name}` to give a type to.", name)
            if given.count(name) > 1:
                raise TableError(f"Column `{name}` cannot be of two types.", name)


@dataclass
class Part:
    """What one file has of a column."""

    file: str
    rows: int = 0
    known: int = 0
    levels: Counter[str] = field(default_factory=Counter)
    room: int = NUMBERS_KEPT  # for further numbers

    @property
    def missing_share(self) -> float:
        return 1 - self.known / self.rows if self.rows else 0.0

    def unknown_share(self, levels: Collection[str]) -> float:
        """The share of the known values that are none of these levels."""
        unknown = sum(count for level, count in self.levels.items() if level not in levels)
        return unknown / max(1, self.known)


@dataclass
class SeenColumn:
    """What the values of one column were so far, file by file."""

    name: str
    parts: list[Part] = field(default_factory=list)
    kinds: set[ColumnType] = field(default_factory=set)
    numbers: list[np.ndarray] = field(default_factory=list)
    has_too_many: bool = False  # levels
    unit: str | None = None

    def add(self, values: pa.ChunkedArray, texts: pa.ChunkedArray) -> None:
        """Values with the types that they look like, and as text."""
        part = self.parts[-1]
        part.rows += len(values)
        part.known += len(values) - values.null_count
        if values.null_count == len(values):
            return
        kind = _kind(self.name, values)
        self.kinds.add(kind)
        if not self.has_too_many:
            # A longer level cannot be declared, so that its beginning is enough.
            short = pc.utf8_slice_codeunits(texts.drop_null(), 0, MAX_TEXT + 1)
            for each in plain_values(pc.value_counts(short)):
                part.levels[each["values"]] += each["counts"]
            self.has_too_many = len(self.levels) > MAX_LEVELS
        if kind is ColumnType.NUMERIC:
            numbers = np.asarray(values.drop_null().cast(pa.float64()))[: part.room]
            self.numbers.append(numbers)
            part.room -= len(numbers)

    @property
    def levels(self) -> set[str]:
        return set().union(*(part.levels for part in self.parts))

    @property
    def is_missing(self) -> bool:
        """Whether there is a row without a value."""
        return any(part.known < part.rows for part in self.parts)

    @property
    def is_text(self) -> bool:
        return ColumnType.CATEGORICAL in self.kinds

    def column(self, types: ColumnTypes, *, is_final: bool) -> Column:
        """The column as it is to be declared; `is_final` if no other levels will come."""
        if self.name in types.ordinal:
            return self._ordinal(types.ordinal[self.name])
        if self.name in types.categorical:
            return self._categorical()
        if self._may_be_ranges and (order := ordered_ranges(self.levels)):
            return self._ordinal(order)
        kind = ColumnType.NUMERIC if self.name in types.numeric else self._only_kind()
        if kind is ColumnType.CATEGORICAL and is_final and len(self.levels) == TWO:
            return self._ordinal(sorted(self.levels))  # one number instead of three
        if kind is ColumnType.CATEGORICAL:
            return self._categorical()
        fill = None
        if self.is_missing and kind is ColumnType.NUMERIC:
            fill = float(np.median(np.concatenate(self.numbers)))
        return Column(self.name, kind, self.unit, missing=self.is_missing, fill=fill)

    def _categorical(self) -> Column:
        if self.has_too_many:
            raise TableError(
                f"Column `{self.name}` has more than {MAX_LEVELS} levels. Leave out identifiers "
                "and free text.",
                self.name,
            )
        levels = tuple(sorted(self.levels))
        return Column(self.name, ColumnType.CATEGORICAL, values=levels, missing=self.is_missing)

    def _ordinal(self, order: Sequence[str]) -> Column:
        if self.has_too_many or self.levels - set(order):
            raise TableError(
                f"Column `{self.name}` has other levels than {', '.join(order)}.", self.name
            )
        fill = None
        if self.is_missing:
            counts = sum((part.levels for part in self.parts), Counter[str]())
            below = np.cumsum([counts[level] for level in order])
            fill = order[int(np.searchsorted(below, (below[-1] + 1) // 2))]
        return Column(
            self.name,
            ColumnType.ORDINAL,
            values=tuple(order),
            missing=self.is_missing,
            fill=fill,
        )

    def mixes_texts(self, types: ColumnTypes) -> bool:
        """Whether it looks like numbers with a few texts between them, and nothing else is declared."""
        if self.name in types.categorical or self.name in types.ordinal:
            return False
        if self._may_be_ranges and ordered_ranges(self.levels):
            return False
        return self._has_numbers or self.kinds == {ColumnType.CATEGORICAL, ColumnType.NUMERIC}

    def _only_kind(self) -> ColumnType:
        if len(self.kinds) > 1:
            raise TableError(
                f"Column `{self.name}` holds {' and '.join(sorted(self.kinds))} values. "
                "Declare it categorical, leave it out, or clean it.",
                self.name,
            )
        return next(iter(self.kinds))

    @property
    def _may_be_ranges(self) -> bool:
        return self.is_text and not self.has_too_many and not self._has_numbers

    @property
    def holds_dates(self) -> bool:
        """Whether all values are dates."""
        return bool(self.levels) and all(map(_DATE.fullmatch, self.levels))

    def useless(self) -> str | None:
        """Why the column cannot help on the last file, if it cannot."""
        is_text = self.kinds == {ColumnType.CATEGORICAL} and not self._has_numbers
        if is_text and self.holds_dates:
            return "holds dates: it"
        if is_text and self._differs:
            return "has another text in most rows, as free text and identifiers do,"
        if self._gap > MOST_GAP:
            return f"{self._missing_shares} and cannot transfer: it"
        if is_text and self._unknown_share == 1:
            return "has no level that both tables have: it"
        return None

    def remark(self) -> str | None:
        """How the column differs between the first and the last file, if it does strongly."""
        if self._gap >= NOTED_SHARE:
            return f"column {self.name} {self._missing_shares}, which tells the tables apart"
        if self.is_text and self._unknown_share >= NOTED_SHARE:
            first, last = self.parts[0].file, self.parts[-1].file
            return (
                f"column {self.name} has levels in {self._unknown_share:.0%} of the rows of {last} "
                f"that {first} does not have: they cannot transfer"
            )
        return None

    @property
    def _differs(self) -> bool:
        """Whether most rows have a value of their own."""
        known = sum(part.known for part in self.parts)
        return self.has_too_many or (known > FEW_ROWS and 2 * len(self.levels) > known)

    @property
    def _has_numbers(self) -> bool:
        """Whether it looks like measurements with a few cells that are no numbers."""
        if not self.is_text:
            return False
        levels = self.levels
        fractions = len(levels) > FEW_ROWS and 2 * sum(map(_is_fraction, levels)) > len(levels)
        return fractions or (self._differs and 2 * sum(map(_is_number, levels)) > len(levels))

    @property
    def _gap(self) -> float:
        return abs(self.parts[0].missing_share - self.parts[-1].missing_share)

    @property
    def _unknown_share(self) -> float:
        return self.parts[-1].unknown_share(self.parts[0].levels)

    @property
    def _missing_shares(self) -> str:
        first, last = self.parts[0], self.parts[-1]
        return (
            f"is missing in {first.missing_share:.0%} of {first.file} and "
            f"{last.missing_share:.0%} of {last.file}"
        )


def _is_number(text: str) -> bool:
    """Whether a text is meant as a number: `<5`, `12 %` and `1,200.5` are no numbers yet."""
    return _NUMBER.fullmatch(text) is not None


def _is_fraction(text: str) -> bool:
    return _is_number(text) and ("." in text or "," in text)


def _kind(name: str, values: pa.ChunkedArray) -> ColumnType:
    kind = values.type
    if pa.types.is_boolean(kind):
        return ColumnType.BOOLEAN
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return ColumnType.NUMERIC
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ColumnType.CATEGORICAL
    raise TableError(f"Column `{name}` is neither number, text nor boolean. Leave it out.", name)
