"""What tables hold, found out in one pass: columns to declare, arms, the range of the rewards."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from service.columns.schema import TableError, TableSchema, shown_names
from service.columns.seen import NUMBERS_IN_ALL, NUMBERS_KEPT, ColumnTypes, Part, SeenColumn
from service.formats.tables import TableFile
from service.records import RewardRange
from service.unpacking import MAX_LEVELS_SEEN

MAX_FOUND_ARMS = 1000


class OneSidedError(TableError):
    """Columns that only one of two tables has; `columns` are their names."""

    def __init__(
        self, file: str, other: str, columns: Sequence[str], known: Collection[str]
    ) -> None:
        self.columns = columns
        is_one = len(columns) == 1
        names = shown_names([f"`{name}`" for name in columns])
        detail = (
            f"Column{'' if is_one else 's'} {names} "
            f"{'is' if is_one else 'are'} in {file}, but not in {other}. "
        )
        alike = {name.casefold(): name for name in known}
        same = [(name, alike[name.casefold()]) for name in columns if name.casefold() in alike]
        if same:
            detail += f"Does `{same[0][0]}` mean `{same[0][1]}`? Then give it one name in both. "
        super().__init__(f"{detail}Leave {'it' if is_one else 'them'} out.", columns[0])


@dataclass(frozen=True, slots=True)
class SurveyedColumns:
    """Columns with nothing left open, those that are left out, and what a person should know of both.

    `seen` is what each file has of every column, those that are left out too.
    """

    schema: TableSchema
    seen: tuple[SeenColumn, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]


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


def surveyed_columns(
    files: Sequence[tuple[TableFile, Collection[str]]],
    types: ColumnTypes | None = None,
    keep: Collection[str] | None = None,
) -> SurveyedColumns:
    """The columns of all files, each with the columns that are no context.

    Levels, missing values and medians are those of all rows, without any reward. Columns that cannot
    transfer from the first file to the last are left out, except those to `keep`. Without `keep` further
    rows may follow, and no column with a value is left out.
    """
    types = types or ColumnTypes()
    wanted = [_wanted(file, apart) for file, apart in files]
    _check_same([file for file, _ in files], wanted)
    types.check(wanted[0])
    for name in keep or ():
        if name not in wanted[0]:
            raise TableError(f"There is no column `{name}` to keep.", name)
    seen = [SeenColumn(name) for name in wanted[0]]
    for file, _ in files:
        _read(seen, file, types)
    reasons = {each.name: _reason(each, keep) for each in seen}
    used = [each for each in seen if reasons[each.name] is None]
    if not used:
        raise TableError(_none_left(reasons))
    for each in used:
        _check_values(each, [file for file, _ in files], types, is_final=keep is not None)
    schema = TableSchema(tuple(each.column(types, is_final=keep is not None) for each in used))
    _check(schema)
    remarks = [f"column {name} {why} is left out" for name, why in reasons.items() if why]
    if keep is not None:
        remarks += [found for each in used if (found := each.remark()) is not None]
    left_out = tuple(name for name, why in reasons.items() if why)
    return SurveyedColumns(schema, tuple(seen), left_out, tuple(remarks))


def _reason(column: SeenColumn, keep: Collection[str] | None) -> str | None:
    """Why a column is left out, if it is."""
    if not column.kinds:
        return "has no value and"
    return None if keep is None or column.name in keep else column.useless()


def _check_values(
    column: SeenColumn, files: Sequence[TableFile], types: ColumnTypes, *, is_final: bool
) -> None:
    """Refuse dates where other rows may follow, and texts among numbers."""
    if not is_final and column.holds_dates and column.name not in types.categorical:
        raise TableError(
            f"Column `{column.name}` holds dates. Leave it out, declare it categorical, or write "
            "numbers, such as days since the first one.",
            column.name,
        )
    if column.mixes_texts(types):
        _refuse_texts(column.name, files)


def _refuse_texts(name: str, files: Sequence[TableFile]) -> None:
    """Name the first row of a column of numbers that holds a text."""
    for file in files:
        first_row = 0
        for table in file.batches([name]):
            try:
                file.numbers(table, name, first_row)
            except TableError as error:
                raise TableError(
                    f"Column `{name}` of {file.name} holds a text among numbers here. Write a "
                    "number, leave the cell empty if the value is missing, declare the column "
                    "categorical, or leave it out.",
                    name,
                    error.row,
                ) from None
            first_row += table.num_rows


def _none_left(reasons: Mapping[str, str | None]) -> str:
    whys = "; ".join(f"`{name}` {why} is left out" for name, why in list(reasons.items())[:3])
    return f"There is no column left to be a context{f': {whys}' if whys else ''}."


def surveyed_context(
    paths: Sequence[Path], ignore: Collection[str], categorical: Collection[str]
) -> dict[str, Any]:
    """The context of an experiment for the rows of some files, as `POST /experiments` takes it."""
    files = [TableFile(path) for path in paths]
    for name in ignore:
        if not any(name in file.names for file in files):
            raise TableError(f"There is no column `{name}` to leave out.", name)
    apart = [(file, set(ignore) & set(file.names)) for file in files]
    found = surveyed_columns(apart, ColumnTypes(categorical))
    return {"kind": "table", "columns": list(declared(found.schema))}


def surveyed_rounds(file: TableFile, arm: str, reward: str) -> SurveyedRounds:
    """The arms and rewards of a history."""
    file.require(arm, reward)
    arms: set[str] = set()
    known: list[np.ndarray] = []
    rows = 0
    for table in file.batches([arm, reward]):
        arms |= _arms(file, table, arm, rows)
        if len(arms) > MAX_FOUND_ARMS:
            raise TableError(f"Column `{arm}` names more than {MAX_FOUND_ARMS} arms.", arm)
        values = file.rewards(table, reward, rows)
        known.append(values[~np.isnan(values)])
        rows += table.num_rows
    rewards = np.concatenate([*known, np.empty(0)])
    if not len(rewards) or not np.isfinite(rewards).all():
        raise TableError(f"{file.name} has no row with an arm and a reward.")
    if len(arms) == 1:
        raise TableError(f"Column `{arm}` names one arm: there is nothing to choose.", arm)
    low, high = float(rewards.min()), float(rewards.max())
    if low == high:
        raise TableError(f"All rewards of column `{reward}` are equal: no arm is better.", reward)
    ranked = tuple(sorted(arms, key=_rank))
    return SurveyedRounds(ranked, RewardRange(low, high), float(rewards.mean()), rows)


def _arms(file: TableFile, table: pa.Table, arm: str, first_row: int) -> set[str]:
    found = file.texts(table, arm, first_row)
    if None in found:
        row = first_row + found.index(None)
        raise TableError(f"Column `{arm}` may not be missing.", arm, row)
    return {each for each in found if each is not None}


def _rank(arm: str) -> tuple[float, str]:
    """Arms that are numbers in their order, then all others by name."""
    try:
        return float(arm), arm
    except ValueError:
        return np.inf, arm


def _wanted(file: TableFile, apart: Collection[str]) -> list[str]:
    file.require(*apart)
    return [name for name in file.names if name not in apart]


def _check_same(files: Sequence[TableFile], wanted: Sequence[list[str]]) -> None:
    """All files have the same columns, in any order."""
    first = files[0]
    for file, names in zip(files[1:], wanted[1:], strict=True):
        for one, its, other, others in (
            (file, names, first, wanted[0]),
            (first, wanted[0], file, names),
        ):
            if only := [name for name in its if name not in others]:
                raise OneSidedError(one.name, other.name, only, others)


def _read(seen: Sequence[SeenColumn], file: TableFile, types: ColumnTypes) -> None:
    room = min(NUMBERS_KEPT, NUMBERS_IN_ALL // max(1, len(seen)))
    for column in seen:
        column.parts.append(Part(file.name, room=room))
        column.unit = column.unit or file.units.get(column.name)
    first_row = 0
    for table in file.batches([column.name for column in seen]):
        for name in types.numeric:
            file.numbers(table, name, first_row)  # which says where one is none
        texts = file.trimmed(table.select([column.name for column in seen]))
        values = file.guessed(texts)
        for column in seen:
            _add(column, values[column.name], texts[column.name] if file.is_text else None)
        _check_levels(seen)
        first_row += table.num_rows
    if not first_row:
        raise TableError(f"{file.name} has no rows.")


def _check_levels(seen: Sequence[SeenColumn]) -> None:
    if sum(len(part.levels) for column in seen for part in column.parts) > MAX_LEVELS_SEEN:
        raise TableError(
            f"The columns have more than {MAX_LEVELS_SEEN:,} levels in all. Leave out identifiers "
            "and free text."
        )


def _add(column: SeenColumn, values: pa.ChunkedArray, texts: pa.ChunkedArray | None) -> None:
    if isinstance(values.type, pa.DictionaryType):
        values = values.cast(values.type.value_type)
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
    column.add(values, _texts(values) if texts is None else texts)


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_floating(values.type):
        try:
            values = values.cast(pa.int64())
        except pa.ArrowInvalid:
            return pa.chunked_array([pa.array([], pa.string())])  # numbers are no levels
    return values.cast(pa.string())


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
