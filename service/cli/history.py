"""`daband log import` of a table: past rounds into a new or an existing experiment."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from model import ContextKind
from service import DEFAULT_METHOD
from service.app import opened_database
from service.auth.tenants import TenantScope, split
from service.cli.fit.tables import notes
from service.cli.local import run
from service.cli.log_evaluation import writing
from service.cli.options import fail, progress_bar
from service.columns.schema import TableError, TableSchema
from service.columns.seen import ColumnTypes
from service.errors import UnknownExperiment
from service.evaluating.history import HistoryImport, ImportedHistory, history_shape
from service.experiment_spec import ExperimentSpec
from service.formats.cells.genes import CellOptions
from service.formats.cells.tables import opened_table
from service.formats.history import HistoryColumns, HistorySpool, spooled
from service.formats.image_tables import ImageOptions, opened_image_table
from service.formats.rows.csv_rows import CsvOptions
from service.formats.surveying import surveyed_columns, surveyed_rounds
from service.formats.table_pair import Remark, column_remarks, range_remark
from service.formats.tables import TableFile
from service.images.named import NamedImages
from service.records import Experiment, RewardRange
from service.settings import Settings
from service.storage.events.history_parts import HistoryParts
from service.storage.experiments import Experiments


@dataclass(frozen=True)
class TableImport:
    """A table of past rounds, and the declaration of the experiment if it is new."""

    path: Path
    columns: HistoryColumns
    csv: CsvOptions = field(default_factory=CsvOptions)
    reward_range: RewardRange | None = None
    types: ColumnTypes = field(default_factory=ColumnTypes)
    method: str = DEFAULT_METHOD
    seed: int = 0
    config: Mapping[str, Any] = field(default_factory=dict)
    cells: CellOptions = field(default_factory=CellOptions)
    images: ImageOptions | None = None


def import_table(settings: Settings, full_name: str, wanted: TableImport) -> None:
    """Import the table, and say what came of it."""
    try:
        done = run(_imported(settings, full_name, wanted))
    except OSError as error:
        fail(f"{wanted.path}: {error.strerror}")
    except (TableError, LookupError) as error:
        name = wanted.path.name
        fail(str(error) if name in str(error) else f"{name}: {error}")
    known = "" if done.propensities else "; none has a propensity: no offline evaluation"
    state = "are now" if done.is_new else "were already"
    typer.echo(f"{done.rows} rounds with {done.rewards} rewards {state} in {full_name}{known}")


async def _imported(settings: Settings, full_name: str, wanted: TableImport) -> ImportedHistory:
    scope, name = split(full_name)
    async with opened_database(settings) as database, writing(database) as event_log:
        experiments = Experiments(database, settings.quotas)
        found = await _existing(experiments, scope, name)
        spec, spool = await asyncio.to_thread(_read, settings, name, wanted, found)
        with spool, progress_bar("importing") as show:
            digest = await asyncio.to_thread(spool.digest)
            if found is None:
                await asyncio.to_thread(spec.prove)
                found = await experiments.create(scope.new_full_name(name), **spec.row())
            importing = HistoryImport(event_log, HistoryParts(database), found)
            return await importing.run(spool, digest, show)


async def _existing(experiments: Experiments, scope: TenantScope, name: str) -> Experiment | None:
    try:
        return await experiments.get(scope.full_name(name))
    except UnknownExperiment:
        return None


def _read(
    settings: Settings, name: str, wanted: TableImport, found: Experiment | None
) -> tuple[ExperimentSpec, HistorySpool]:
    """The experiment, declared for the table if it is new, and all rounds of the table."""
    known = None if found is None else ExperimentSpec.of(found)
    if known is not None and wanted.reward_range not in (None, known.reward_range):
        fail("--reward-range: the experiment declares another one")
    with _opened(wanted, None if known is None else known.table) as (file, images):
        if known is not None:
            return known, _checked(file, images, wanted, known)
        spec, remarks = _declared(name, wanted, file, images)
        spec.check()
        spec.check_budget(settings.budget_limits)
        spool = _checked(file, images, wanted, spec)
        for note in notes(remarks, can_keep=False):
            typer.echo(f"note: {note}")
        return spec, spool


@contextmanager
def _opened(
    wanted: TableImport, schema: TableSchema | None
) -> Iterator[tuple[TableFile, NamedImages | None]]:
    if wanted.images is not None:
        with opened_image_table(wanted.path, wanted.images.folder, wanted.csv) as found:
            yield found
        return
    apart = wanted.columns.apart
    with opened_table(wanted.path, apart, schema, wanted.cells, wanted.csv) as file:
        yield file, None


def _declared(
    name: str, wanted: TableImport, file: TableFile, images: NamedImages | None
) -> tuple[ExperimentSpec, list[Remark]]:
    """An experiment for the table: its columns or its images, its arms, the range of its rewards.

    With what a person should know of the table.
    """
    wanted.columns.check(file)
    rounds = surveyed_rounds(file, wanted.columns.arm, wanted.columns.reward)
    table = image = None
    remarks = [*range_remark(file.name, rounds, wanted.reward_range)]
    if wanted.images is not None and images is not None:
        image = wanted.images.schema(file, images)
        shape: tuple[int, ...] = image.shape
    else:
        apart = {*wanted.columns.apart, *wanted.columns.ignore}
        found = surveyed_columns([(file, apart)], wanted.types)
        table = found.schema
        shape = (table.width,)
        remarks += column_remarks(wanted.columns.arm, rounds, found)
    unit = wanted.reward_range or rounds.range_to_declare
    spec = ExperimentSpec(
        name,
        rounds.arms,
        ContextKind.SHARED,
        shape,
        wanted.method,
        wanted.seed,
        wanted.config,
        table=table,
        image=image,
        reward_range=unit,
    )
    return spec, remarks


def _checked(
    file: TableFile, images: NamedImages | None, wanted: TableImport, spec: ExperimentSpec
) -> HistorySpool:
    columns = wanted.columns
    if spec.table is not None:  # a column without any value was not declared
        apart = {*columns.apart, *columns.ignore}
        empty = [name for name in file.names if name not in apart | set(spec.table.by_name)]
        if empty and all(file.is_empty(name) for name in empty):
            columns = replace(columns, ignore=(*columns.ignore, *empty))
    return spooled(file, columns, history_shape(spec), images)
