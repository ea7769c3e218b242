"""The two tables of an experiment, surveyed together: past rounds of the source, rows of the target."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from model import Floats
from service.columns.schema import ColumnType, TableError, TableSchema
from service.columns.seen import ColumnTypes, SeenColumn
from service.formats.rows.csv_rows import CsvOptions
from service.formats.surveying import (
    SurveyedColumns,
    SurveyedRounds,
    declared,
    surveyed_columns,
    surveyed_rounds,
)
from service.formats.tables import TableFile
from service.records import UNIT, RewardRange

UPLOADED_ROWS = 50_000  # target rows at once
ROUNDS_AN_ARM = 10  # that there should be at least
FEW_LEVELS = 20  # of a column, of which none needs a remark
ROWS_A_SLOT = 4  # past rounds that each number of a row should have


class About(StrEnum):
    """What a person may change about a remark."""

    RANGE = "the range of the rewards"
    COLUMN = "which columns are used"
    WIDTH = "how many columns are used"


@dataclass(frozen=True, slots=True)
class Remark:
    """What a person should know of the tables."""

    text: str
    about: About | None = None


@dataclass(frozen=True)
class PairChoices:
    """What a person says of two tables; all names are columns."""

    source: Path
    target: Path
    arm: str
    reward: str
    id: str | None = None
    time: str | None = None
    propensity: str | None = None
    ignore: tuple[str, ...] = ()
    types: ColumnTypes = field(default_factory=ColumnTypes)
    keep: tuple[str, ...] = ()
    reward_range: tuple[float, float] | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)
    sent_as: tuple[str, str] | None = None  # the names of files that a caller sent

    @property
    def names(self) -> tuple[str, str]:
        """What source and target are called."""
        return self.sent_as or (self.source.name, self.target.name)

    def files(self) -> tuple[TableFile, TableFile]:
        """Source and target as tables."""
        source, target = self.sent_as or (None, None)
        return TableFile(self.source, self.csv, source), TableFile(self.target, self.csv, target)


@dataclass(frozen=True)
class TablePair:
    """The two tables as they are: columns, arms, rewards, and what is left out of each."""

    source: TableFile
    target: TableFile
    schema: TableSchema
    seen: Sequence[SeenColumn]
    rounds: SurveyedRounds
    reward_range: tuple[float, float] | None
    source_ignore: tuple[str, ...]
    target_ignore: tuple[str, ...]
    remarks: Sequence[Remark]

    @property
    def unit(self) -> RewardRange:
        """What the rewards 0 and 1 mean."""
        return RewardRange(*(self.reward_range or UNIT))

    def context(self) -> dict[str, Any]:
        """The context to declare."""
        return {"kind": "table", "columns": list(declared(self.schema))}

    def target_slots(self) -> Iterator[Floats]:
        """The encoded rows of the target, some at a time."""
        encoded = self.target.encoded(self.schema, UPLOADED_ROWS, (), self.target_ignore)
        yield from (rows for _, rows in encoded)


def surveyed_pair(wanted: PairChoices) -> TablePair:
    """Read both tables once; `TableError` says what is wrong with which."""
    source, target = wanted.files()
    for name in wanted.ignore:
        if name not in {*source.names, *target.names}:
            raise TableError(f"There is no column `{name}` to leave out.", name)
    if wanted.id is not None:
        target.require(wanted.id)
    rounds = surveyed_rounds(source, wanted.arm, wanted.reward)
    history = {wanted.arm, wanted.reward, wanted.id, wanted.time, wanted.propensity}
    apart = history | {*wanted.ignore}
    source_apart, target_apart = (
        {name for name in each.names if name in apart} for each in (source, target)
    )
    files = [(source, source_apart), (target, target_apart)]
    found = surveyed_columns(files, wanted.types, wanted.keep)
    unit = wanted.reward_range or rounds.range_to_declare
    return TablePair(
        source,
        target,
        found.schema,
        found.seen,
        rounds,
        unit,
        (*sorted(source_apart - history), *found.left_out),
        (*sorted(target_apart), *found.left_out),
        [*_remarks(wanted, rounds, found, target), *_repeated(wanted, source, target)],
    )


def range_remark(
    name: str, rounds: SurveyedRounds, given: tuple[float, float] | None
) -> Iterator[Remark]:
    """Where the range of the rewards of a table comes from, if it was not given."""
    if given is None and rounds.range_to_declare is not None:
        low, high = rounds.rewards
        yield Remark(
            f"rewards lie between {low:g} and {high:g}, the smallest and the largest of {name}",
            About.RANGE,
        )


def column_remarks(arm: str, rounds: SurveyedRounds, found: SurveyedColumns) -> Iterator[Remark]:
    """What the columns and arms of past rounds let expect."""
    yield from (Remark(text, About.COLUMN) for text in found.remarks)
    width = found.schema.width
    if width * ROWS_A_SLOT > rounds.rows:
        yield Remark(
            f"a row takes {width} numbers, and there are {rounds.rows} past rounds", About.WIDTH
        )
    if rounds.rows < ROUNDS_AN_ARM * len(rounds.arms):
        yield Remark(
            f"column {arm} names {len(rounds.arms)} arms for {rounds.rows} past rounds: "
            "bring more, or join arms that are alike, such as doses"
        )
    named = [each for each in found.schema.columns if each.type is ColumnType.CATEGORICAL]
    for each in named:
        if len(each.values) * ROUNDS_AN_ARM > max(rounds.rows, FEW_LEVELS * ROUNDS_AN_ARM):
            yield Remark(
                f"column {each.name} has {len(each.values)} levels for {rounds.rows} past rounds: most "
                "are too rare to be learned from",
                About.COLUMN,
            )


def _remarks(
    wanted: PairChoices, rounds: SurveyedRounds, found: SurveyedColumns, target: TableFile
) -> Iterator[Remark]:
    yield from range_remark(wanted.names[0], rounds, wanted.reward_range)
    yield from column_remarks(wanted.arm, rounds, found)
    for name in (wanted.arm, wanted.reward):
        if name in target.names:
            yield Remark(f"column {name} of {wanted.names[1]} is not used")


def _repeated(wanted: PairChoices, source: TableFile, target: TableFile) -> Iterator[Remark]:
    """What several rows of one subject mean in each table."""
    if wanted.id is None:
        return
    if repeated := target.repeats(wanted.id):
        yield Remark(
            f"rows of {wanted.names[1]} with the {wanted.id} of an earlier row: {repeated}"
        )
    if wanted.id in source.names and (repeated := source.repeats(wanted.id)):
        yield Remark(
            f"rows of {wanted.names[0]} with the {wanted.id} of an earlier row: {repeated}. Where "
            "they differ, some are learned from and others held out: the expected reward may be too high"
        )
