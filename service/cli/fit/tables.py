"""The two tables of a fit: what they hold, and what is declared of it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from model import Floats
from service import DEFAULT_METHOD
from service.columns.schema import TableError, TableSchema
from service.columns.seen import ColumnTypes
from service.formats.cells.genes import CellOptions
from service.formats.cells.reading import SUFFIX, CellFile
from service.formats.cells.tables import is_cells, shared_tables
from service.formats.surveying import (
    SurveyedColumns,
    SurveyedRounds,
    declared,
    surveyed_columns,
    surveyed_rounds,
)
from service.formats.tables import CsvOptions, TableFile

UPLOADED_ROWS = 50_000  # target rows in one upload
ROWS_A_SLOT = 4  # past rounds that each number of a row should have


class FitError(Exception):
    """The tables cannot be used, or learning failed; the message says why."""


@dataclass(frozen=True)
class FitTables:
    """What was asked for; all names are columns."""

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
    method: str = DEFAULT_METHOD
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    cells: CellOptions = field(default_factory=CellOptions)

    @property
    def names(self) -> tuple[str, str]:
        """What source and target are called; a table made of cells has the name of their file."""
        made = f"{SUFFIX}.parquet"
        source, target = (
            each.name.removesuffix(".parquet") if each.name.endswith(made) else each.name
            for each in (self.source, self.target)
        )
        return source, target

    @property
    def csv_query(self) -> dict[str, str]:
        """How the text of a CSV file is read, as query parameters."""
        found = {"separator": self.csv.separator, "decimal": self.csv.decimal}
        return {name: text for name, text in found.items() if text} | {
            "encoding": self.csv.encoding
        }


def as_tables(wanted: FitTables, folder: Path) -> FitTables:
    """The same with tables in place of files of cells, whose columns of `obs` are no context."""
    if not is_cells(wanted.source) and not is_cells(wanted.target):
        return wanted
    if not is_cells(wanted.source) or not is_cells(wanted.target):
        raise FitError("either both files hold cells (.h5ad) or none of them")
    named = (wanted.arm, wanted.reward, wanted.id, wanted.time, wanted.propensity)
    kept = [each for each in named if each is not None]
    try:
        with CellFile(wanted.source) as file:
            known = [each for each in kept if each != wanted.id or each in file.obs_names]
        of_target = [] if wanted.id is None else [wanted.id]
        source, target = shared_tables(
            (wanted.source, known), (wanted.target, of_target), wanted.cells, folder
        )
    except OSError as error:
        raise FitError(f"{error.filename}: {error.strerror}") from error
    except TableError as error:
        raise FitError(str(error)) from error
    return replace(wanted, source=source, target=target)


@dataclass(frozen=True)
class Surveyed:
    """The two tables as they are: columns, arms, rewards, and what is left out of each."""

    source: TableFile
    target: TableFile
    schema: TableSchema
    rounds: SurveyedRounds
    reward_range: tuple[float, float] | None
    source_ignore: tuple[str, ...]
    target_ignore: tuple[str, ...]
    remarks: Sequence[str]

    def context(self) -> dict[str, Any]:
        """The context to declare."""
        return {"kind": "table", "columns": list(declared(self.schema))}

    def target_slots(self) -> Iterator[Floats]:
        """The encoded rows of the target, some at a time."""
        encoded = self.target.encoded(self.schema, UPLOADED_ROWS, (), self.target_ignore)
        yield from (rows for _, rows in encoded)


def surveyed(wanted: FitTables) -> Surveyed:
    """Read both tables once; `FitError` says what is wrong with which."""
    try:
        return _surveyed(wanted)
    except OSError as error:
        raise FitError(f"{error.filename}: {error.strerror}") from error
    except (TableError, LookupError) as error:
        raise FitError(str(error)) from error


def _surveyed(wanted: FitTables) -> Surveyed:
    source, target = (TableFile(path, wanted.csv) for path in (wanted.source, wanted.target))
    for name in wanted.ignore:
        if name not in {*source.names, *target.names}:
            raise TableError(f"There is no column `{name}` to leave out.", name)
    if wanted.id is not None and wanted.id not in target.names:
        raise TableError(f"There is no column `{wanted.id}` in {target.path.name}.", wanted.id)
    rounds = surveyed_rounds(source, wanted.arm, wanted.reward)
    named = [wanted.arm, wanted.reward, wanted.id, wanted.time, wanted.propensity, *wanted.ignore]
    apart = {each for each in named if each is not None}
    source_apart, target_apart = (apart & set(each.names) for each in (source, target))
    files = [(source, source_apart), (target, target_apart)]
    found = surveyed_columns(files, wanted.types, wanted.keep)
    unit = wanted.reward_range or rounds.range_to_declare
    labels = [name for name in (wanted.arm, wanted.reward) if name in target.names]
    history = {wanted.arm, wanted.reward, wanted.id, wanted.time, wanted.propensity}
    return Surveyed(
        source,
        target,
        found.schema,
        rounds,
        unit,
        (*sorted(source_apart - history), *found.left_out),
        (*sorted(target_apart), *found.left_out),
        list(_remarks(wanted, rounds, found, labels)),
    )


def _remarks(
    wanted: FitTables, rounds: SurveyedRounds, found: SurveyedColumns, labels: Sequence[str]
) -> Iterator[str]:
    if wanted.reward_range is None and rounds.range_to_declare is not None:
        low, high = rounds.rewards
        yield (
            f"rewards lie between {low:g} and {high:g}, the smallest and the largest of "
            f"{wanted.names[0]}; --reward-range declares another range"
        )
    yield from found.remarks
    if found.remarks:
        yield "--keep COLUMN keeps a column that is left out, --ignore COLUMN leaves out more"
    width = found.schema.width
    if width * ROWS_A_SLOT > rounds.rows:
        yield (
            f"a row takes {width} numbers, and there are {rounds.rows} past rounds: "
            "--ignore columns that do not matter"
        )
    for name in labels:
        yield f"column {name} of {wanted.names[1]} is not used"
