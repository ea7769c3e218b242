"""What a table holds, found out in one pass: columns to declare, arms, the range of the rewards."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.columns.schema import (
    MAX_LEVELS,
    Column,
    ColumnType,
    TableError,
    TableSchema,
)
from service.formats.tables import TableFile
from service.records import RewardRange

MAX_FOUND_ARMS = 1000
_NUMBERS_KEPT = 65_536  # of a column of a file, for its median


@dataclass(frozen=True, slots=True)
class SurveyedColumns:
    """Columns with nothing left open, and those that have no value at all."""

    schema: TableSchema
    empty: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SurveyedRounds:
    """The arms that a history names, in order, and the smallest and largest reward."""

    arms: tuple[str, ...]
    rewards: RewardRange
    mean: float
    rows: int

    @property
    def range_to_declare(self) -> RewardRange | None:
        """None if the rewards already lie between 0 and 1."""
        low, high = self.rewards
        return None if low >= 0 and high <= 1 else self.rewards


@dataclass
class _Seen:
    """What the values of one column were so far."""

    name: str
    kinds: set[ColumnType] = field(default_factory=set)
    levels: set[str] = field(default_factory=set)
    is_missing: bool = False
    numbers: list[np.ndarray] = field(default_factory=list)
    room: int = 0  # for numbers of the present file
    unit: str | None = None

    def add(self, values: pa.ChunkedArray, texts: pa.ChunkedArray) -> None:
        """Values with the types that they look like, and as text."""
        self.is_missing |= values.null_count > 0
        if values.null_count == len(values):
            return
        kind = _kind(self.name, values)
        self.kinds.add(kind)
        if len(self.levels) <= MAX_LEVELS:
            self.levels |= set(pc.unique(texts.drop_null()).to_pylist())
        if kind is ColumnType.NUMERIC:
            numbers = np.asarray(values.drop_null().cast(pa.float64()))[: self.room]
            self.numbers.append(numbers)
            self.room -= len(numbers)

    def column(self, *, is_categorical: bool) -> Column:
        """The column as it is to be declared."""
        kind = ColumnType.CATEGORICAL if is_categorical else self._only_kind()
        if kind is ColumnType.CATEGORICAL:
            if len(self.levels) > MAX_LEVELS:
                raise TableError(
                    f"Column `{self.name}` has more than {MAX_LEVELS} levels. Leave out identifiers "
                    "and free text.",
                    self.name,
                )
            levels = tuple(sorted(self.levels))
            return Column(self.name, kind, self.unit, levels, self.is_missing)
        fill = None
        if self.is_missing and kind is ColumnType.NUMERIC:
            fill = float(np.median(np.concatenate(self.numbers)))
        return Column(self.name, kind, self.unit, missing=self.is_missing, fill=fill)

    def _only_kind(self) -> ColumnType:
        if len(self.kinds) > 1:
            raise TableError(
                f"Column `{self.name}` holds {' and '.join(sorted(self.kinds))} values. "
                "Declare it categorical, leave it out, or clean it.",
                self.name,
            )
        return next(iter(self.kinds))


def surveyed_columns(
    files: Sequence[tuple[TableFile, Collection[str]]], categorical: Collection[str] = ()
) -> SurveyedColumns:
    """The columns of all files, each with the columns that are no context.

    Levels, missing values and medians are those of all rows, without any reward.
    """
    wanted = [_wanted(file, apart) for file, apart in files]
    _check_same([file for file, _ in files], wanted)
    seen = {name: _Seen(name) for name in wanted[0]}
    for name in categorical:
        if name not in seen:
            raise TableError(f"There is no column `{name}` to be categorical.", name)
    for (file, _), names in zip(files, wanted, strict=True):
        for each in seen.values():
            each.room = _NUMBERS_KEPT
            each.unit = each.unit or file.units.get(each.name)
        for table in file.batches():
            _add(seen, file, table.select(names))
    filled = [each for each in seen.values() if each.kinds]
    columns = [each.column(is_categorical=each.name in categorical) for each in filled]
    schema = TableSchema(tuple(columns))
    if not columns:
        raise TableError("There is no column left to be a context.")
    _check(schema)
    return SurveyedColumns(schema, tuple(each.name for each in seen.values() if not each.kinds))


def surveyed_context(
    paths: Sequence[Path], ignore: Collection[str] = (), categorical: Collection[str] = ()
) -> dict[str, Any]:
    """The context of an experiment for the rows of some files, as `POST /experiments` takes it."""
    files = [TableFile(path) for path in paths]
    for name in ignore:
        if not any(name in file.names for file in files):
            raise TableError(f"There is no column `{name}` to leave out.", name)
    apart = [(file, set(ignore) & set(file.names)) for file in files]
    found = surveyed_columns(apart, categorical)
    return {"kind": "table", "columns": list(declared(found.schema))}


def surveyed_rounds(file: TableFile, arm: str, reward: str) -> SurveyedRounds:
    """The arms and rewards of a history."""
    for name in (arm, reward):
        if name not in file.names:
            raise TableError(f"There is no column `{name}` in {file.path.name}.", name)
    arms: set[str] = set()
    low, high, rows = np.inf, -np.inf, 0
    total, count = 0.0, 0
    for table in file.batches():
        arms |= {each for each in file.texts(table, arm, rows) if each is not None}
        if len(arms) > MAX_FOUND_ARMS:
            raise TableError(f"Column `{arm}` names more than {MAX_FOUND_ARMS} arms.", arm)
        values = file.numbers(table, reward, rows)
        known = values[~np.isnan(values)]
        if len(known):
            low, high = min(low, float(known.min())), max(high, float(known.max()))
            total, count = total + float(known.sum()), count + len(known)
        rows += table.num_rows
    if not arms or not np.isfinite(low) or not np.isfinite(high):
        raise TableError(f"{file.path.name} has no row with an arm and a reward.")
    return SurveyedRounds(
        tuple(sorted(arms, key=_rank)), RewardRange(low, high), total / count, rows
    )


def _rank(arm: str) -> tuple[float, str]:
    """Arms that are numbers in their order, then all others by name."""
    try:
        return float(arm), arm
    except ValueError:
        return np.inf, arm


def _wanted(file: TableFile, apart: Collection[str]) -> list[str]:
    for name in apart:
        if name not in file.names:
            raise TableError(f"There is no column `{name}` in {file.path.name}.", name)
    return [name for name in file.names if name not in apart]


def _check_same(files: Sequence[TableFile], wanted: Sequence[list[str]]) -> None:
    """All files have the same columns, in any order."""
    for file, names in zip(files[1:], wanted[1:], strict=True):
        for name in names:
            if name not in wanted[0]:
                raise TableError(
                    f"Column `{name}` is in {file.path.name}, but not in {files[0].path.name}. "
                    "Leave it out.",
                    name,
                )
        for name in wanted[0]:
            if name not in names:
                raise TableError(
                    f"Column `{name}` is in {files[0].path.name}, but not in {file.path.name}. "
                    "Leave it out.",
                    name,
                )


def _add(seen: dict[str, _Seen], file: TableFile, table: pa.Table) -> None:
    texts = file.trimmed(table) if file.is_text else table
    values = file.guessed(texts) if file.is_text else table
    for name in table.column_names:
        column = values[name]
        if isinstance(column.type, pa.DictionaryType):
            column = column.cast(column.type.value_type)
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        seen[name].add(column, texts[name] if file.is_text else _texts(column))


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_floating(values.type):
        try:
            values = values.cast(pa.int64())
        except pa.ArrowInvalid:
            return pa.chunked_array([pa.array([], pa.string())])  # numbers are no levels
    return values.cast(pa.string())


def _kind(name: str, values: pa.ChunkedArray) -> ColumnType:
    kind = values.type
    if pa.types.is_boolean(kind):
        return ColumnType.BOOLEAN
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return ColumnType.NUMERIC
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return ColumnType.CATEGORICAL
    raise TableError(f"Column `{name}` is neither number, text nor boolean. Leave it out.", name)


def _check(schema: TableSchema) -> None:
    try:
        schema.check()
    except TableError as error:
        place = "" if error.column is None else f"Column `{error.column}`: "
        raise TableError(f"{place}{error.detail}", error.column) from None


def declared(schema: TableSchema) -> Iterator[dict[str, object]]:
    """The columns as `POST /experiments` takes them, nothing left open."""
    for each in schema.plain():
        yield {"missing": False, **each}
