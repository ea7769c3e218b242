"""History: past rounds of an experiment out of a table."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response

from service.auth.tenants import public_name
from service.codec import answers, requests
from service.codec.bodies import HISTORIES, MediaType, media_type
from service.codec.contexts import refuse_column
from service.columns.schema import TableError
from service.errors import refuse
from service.evaluating.history import HistoryImport, ImportedHistory, history_shape
from service.experiment_spec import ExperimentSpec
from service.formats.history import HistoryColumns, HistoryShape, HistorySpool, spooled
from service.formats.image_tables import opened_image_table
from service.formats.rows.csv_rows import CsvOptions
from service.formats.tables import TableFile
from service.ops.unnamed_files import unnamed_file
from service.records import Actor, Experiment
from service.routes import CallerDep, ExperimentDep, ServicesDep, json_answer, received
from service.routes.documentation import problems, stream
from service.services import Services
from service.storage.events.history_parts import HistoryParts

SUFFIXES: Mapping[MediaType, str] = {
    MediaType.CSV: ".csv",
    MediaType.PARQUET: ".parquet",
    MediaType.JSON_LINES: ".jsonl",
    MediaType.ZIP: ".zip",
}

router = APIRouter(prefix="/experiments/{name}", tags=["experiments"])


@router.post(
    "/history",
    status_code=201,
    response_model=answers.HistoryImported,
    responses={
        200: {"model": answers.HistoryImported, "description": "It was already imported"},
        **problems(404, 409, has_body=True),
    },
    openapi_extra=stream(HISTORIES),
)
async def import_history(
    experiment: ExperimentDep,
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    asked: Annotated[requests.HistoryQuery, Query()],
) -> Response:
    """Import past rounds from a table, one a row; all of them are imported or none.

    The query names the columns of a round; all other columns are its context. Rounds of images come as a
    zip archive of the images and one table that names them.
    """
    columns = HistoryColumns(
        asked.arm,
        asked.reward,
        asked.time,
        asked.propensity,
        asked.id,
        tuple(asked.ignore),
        asked.image,
    )
    media = media_type(request.headers.get("content-type") or "", HISTORIES)
    if (columns.image is not None) != (media is MediaType.ZIP):
        refuse("`image` belongs to an archive of images and one table.", "#/image")
    shape = _shape(ExperimentSpec.of(experiment))
    options = _options(asked)
    with unnamed_file() as (file, path):
        await received(request, file)
        name = f"table{SUFFIXES[media]}"
        spool = await asyncio.to_thread(_checked, path, name, options, columns, shape)
    found = await written(services, experiment, spool, Actor(key_id=caller.key_id))
    return json_answer(found.answer(public_name(experiment.name)), 201 if found.is_new else 200)


async def written(
    services: Services, experiment: Experiment, spool: HistorySpool, actor: Actor
) -> ImportedHistory:
    """Write a checked history to the log, and wake the trainer."""
    with spool:
        digest = await asyncio.to_thread(spool.digest)
        parts = HistoryParts(services.database)
        found = await HistoryImport(services.event_log, parts, experiment, actor).run(spool, digest)
    services.bus.wake(experiment.name)
    return found


def _shape(spec: ExperimentSpec) -> HistoryShape:
    try:
        return history_shape(spec)
    except TableError as error:
        refuse(error.detail)


def _options(asked: requests.HistoryQuery) -> CsvOptions:
    try:
        return CsvOptions(asked.separator, asked.decimal, asked.encoding)
    except LookupError as error:
        refuse(str(error), "#/encoding")


def _checked(
    path: Path, name: str, options: CsvOptions, columns: HistoryColumns, shape: HistoryShape
) -> HistorySpool:
    try:
        if columns.image is None:
            return spooled(TableFile(path, options, name), columns, shape)
        with opened_image_table(path, csv=options, sent_as=name) as (file, images):
            return spooled(file, columns, shape, images)
    except TableError as error:
        _refuse(error, name)
    except pa.ArrowException:
        refuse("The table is damaged.")


def _refuse(error: TableError, name: str) -> NoReturn:
    """Name row and column, but not the file, which has no name of its own."""
    text = str(error).replace(f"in {name}", "in the table").replace(name, "The table")
    renamed = TableError(text, error.column)
    refuse_column(renamed, "#" if error.row is None else f"#/{error.row}")
