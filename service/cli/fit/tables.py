"""The two tables of a fit: what was asked for, and what is known of them."""

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from model import Floats
from service import DEFAULT_METHOD
from service.codec.bodies import MediaType
from service.columns.schema import TableError
from service.formats.cells.genes import CellOptions
from service.formats.cells.reading import SUFFIX, CellFile
from service.formats.cells.tables import is_cells, shared_tables
from service.formats.image_tables import TABLES, ImageOptions
from service.formats.surveying import OneSidedError, SurveyedRounds
from service.formats.table_pair import About, PairChoices, Remark, surveyed_pair
from service.images.files import ARCHIVE
from service.images.schema import ImageError
from service.records import UNIT, RewardRange

HINTS: Mapping[About | None, str] = {
    About.RANGE: "; --reward-range declares another range",
    About.WIDTH: ": --ignore columns that do not matter",
}


class FitError(Exception):
    """The tables cannot be used, or learning failed; the message says why."""


@contextmanager
def fit_errors() -> Iterator[None]:
    """Raises what is wrong with files, tables and images as a `FitError`."""
    try:
        yield
    except OSError as error:
        raise FitError(f"{error.filename}: {error.strerror}") from error
    except OneSidedError as error:
        hint = " ".join(f"--ignore {shlex.quote(name)}" for name in error.columns)
        raise FitError(f"{str(error).removesuffix('.')}: {hint}") from error
    except (TableError, ImageError, LookupError) as error:
        raise FitError(str(error)) from error


@dataclass(frozen=True)
class FitTables(PairChoices):
    """What was asked for."""

    method: str = DEFAULT_METHOD
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    cells: CellOptions = field(default_factory=CellOptions)
    images: ImageOptions | None = None

    @property
    def names(self) -> tuple[str, str]:
        """What source and target are called; what is made of a file has its name."""
        made = (f"{SUFFIX}.parquet", *(f"{each}{ARCHIVE}" for each in TABLES))
        source, target = (
            each.stem if each.name.endswith(made) else each.name
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


@fit_errors()
def as_tables(wanted: FitTables, folder: Path) -> FitTables:
    """The same with tables in place of files of cells, whose columns of `obs` are no context."""
    if not is_cells(wanted.source) and not is_cells(wanted.target):
        return wanted
    if not is_cells(wanted.source) or not is_cells(wanted.target):
        raise FitError("either both files hold cells (.h5ad) or none of them")
    named = (wanted.arm, wanted.reward, wanted.id, wanted.time, wanted.propensity)
    kept = [each for each in named if each is not None]
    with CellFile(wanted.source) as file:
        known = [each for each in kept if each != wanted.id or each in file.obs_names]
    of_target = [] if wanted.id is None else [wanted.id]
    source, target = shared_tables(
        (wanted.source, known), (wanted.target, of_target), wanted.cells, folder
    )
    return replace(wanted, source=source, target=target)


@dataclass(frozen=True)
class Surveyed:
    """Source and target as they are: the source's columns, the context to declare, arms, rewards.

    `target_contexts` are those of the target as the model sees them, some at a time.
    """

    source_names: Sequence[str]
    context: Mapping[str, Any]
    rounds: SurveyedRounds
    reward_range: tuple[float, float] | None
    source_ignore: tuple[str, ...]
    target_ignore: tuple[str, ...]
    remarks: Sequence[Remark]
    target_contexts: Callable[[], Iterator[Floats]]
    source_media: str | None = None  # where the name of the source does not say it

    @property
    def unit(self) -> RewardRange:
        """What the rewards 0 and 1 mean."""
        return RewardRange(*(self.reward_range or UNIT))


@fit_errors()
def surveyed(wanted: FitTables) -> Surveyed:
    """Read both tables once; `FitError` says what is wrong with which."""
    found = surveyed_pair(wanted)
    if wanted.id is not None:
        found.target.require_values(wanted.id)
    return Surveyed(
        found.source.names,
        found.context(),
        found.rounds,
        found.reward_range,
        found.source_ignore,
        found.target_ignore,
        found.remarks,
        found.target_slots,
        MediaType.CSV if found.source.is_text else None,
    )


def notes(remarks: Sequence[Remark], *, can_keep: bool = True) -> Iterator[str]:
    """The remarks, and the options that change what they speak of."""
    yield from (f"{each.text}{HINTS.get(each.about, '')}" for each in remarks)
    if any(each.about is About.COLUMN for each in remarks):
        keep = "--keep COLUMN keeps a column that is left out, " if can_keep else ""
        yield f"{keep}--ignore COLUMN leaves out more"
