"""Past rounds of an experiment: imports so far, a new one with its progress and its result."""

import asyncio
import json
from contextlib import ExitStack
from typing import Annotated, Any

import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response
from starlette.datastructures import FormData

from service.auth.keys import Caller
from service.auth.tenants import public_name
from service.columns.schema import TableError
from service.console.creating.forms import (
    actor_of,
    errors_by_field,
    form_of,
    has_file,
    sent_table,
    text_of,
)
from service.console.creating.past_form import ROLES, PastFile, past_file
from service.console.rendering import html, is_htmx, page
from service.errors import (
    ExperimentArchived,
    ExperimentPaused,
    InvalidRequest,
    UnknownExperiment,
    refuse,
)
from service.evaluating.history import HistoryImport, history_shape
from service.experiment_spec import ExperimentSpec
from service.records import EventKind, Experiment, StoredEvent
from service.routes import CallerDep, ExperimentDep, ServicesDep, experiment_of
from service.routes.history import written
from service.services import Services
from service.storage.events.history_parts import HistoryParts

router = APIRouter(include_in_schema=False)

Name = Annotated[str, Query(max_length=128)]
Offset = Annotated[int, Query(ge=0)]


@router.get("/console/experiments/{name}/history")
async def history_page(
    request: Request, experiment: ExperimentDep, services: ServicesDep
) -> Response:
    """The imports so far, and the form of another."""
    return await _answer(request, services, experiment)


@router.post("/console/experiments/{name}/history")
async def import_past(
    request: Request, experiment: ExperimentDep, services: ServicesDep, caller: CallerDep
) -> Response:
    """Show what a file holds, or import it."""
    async with form_of(request) as form:
        with ExitStack() as files:
            try:
                shown = await _imported(services, experiment, caller, form, files)
            except InvalidRequest as error:
                shown = {"wrong": errors_by_field(error)}
            except (ExperimentPaused, ExperimentArchived) as error:
                shown = {"wrong": {"form": error.detail}}
            except TableError as error:
                shown = {"wrong": {"form": str(error)}}
            except pa.ArrowException:
                shown = {"wrong": {"form": "The file is damaged."}}
            return await _answer(request, services, experiment, form, **shown)


async def _imported(
    services: Services, experiment: Experiment, caller: Caller, form: FormData, files: ExitStack
) -> dict[str, Any]:
    spec = ExperimentSpec.of(experiment)
    if not has_file(form, "file"):
        refuse("Choose a table of past rounds.", "#/file")
    file = await asyncio.to_thread(files.enter_context, sent_table(form, "file"))
    found = await asyncio.to_thread(past_file, form, file, spec)
    if text_of(form, "act") != "import":
        return {"found": found}
    try:
        actor = actor_of(form, caller.key_id)
        spool = await asyncio.to_thread(found.spooled, spec)
    except InvalidRequest as error:
        return {"found": found, "wrong": errors_by_field(error)}
    except TableError as error:
        return {"found": found, "wrong": {"form": str(error)}}
    return {"result": await written(services, experiment, spool, actor)}


@router.get("/console/importing")
async def importing_part(
    services: ServicesDep, caller: CallerDep, name: Name, after: Offset = 0
) -> Response:
    """How far the import is that began behind an offset; 204 before it begins."""
    try:
        experiment = await experiment_of(name, services, caller)
    except UnknownExperiment:
        return Response(status_code=204)
    begun = [each for each in await _imports(services, experiment) if each.offset > after]
    if not begun:
        return Response(status_code=204)
    facts = json.loads(begun[-1].payload)
    parts = HistoryParts(services.database)
    importing = HistoryImport(services.event_log, parts, experiment)
    done = await importing.done(facts["sha256"], facts["rows"])
    return html("creating/progress.html", done=done, rows=facts["rows"])


async def _imports(services: Services, experiment: Experiment) -> list[StoredEvent]:
    events = await services.history.lifecycle(experiment.experiment_id)
    return [each for each in events if each.kind is EventKind.HISTORY]


async def _answer(
    request: Request,
    services: Services,
    experiment: Experiment,
    form: FormData | None = None,
    **shown: Any,
) -> Response:
    """The whole page, or for htmx the part below the file, which is kept in the browser."""
    form = form or FormData()
    found: PastFile | None = shown.get("found")
    values: dict[str, Any] = {
        "found": found,
        "wrong": {},
        "result": None,
        "roles": ROLES,
        "is_table": ExperimentSpec.of(experiment).table is not None,
        "by": text_of(form, "by"),
        "reason": text_of(form, "reason"),
        **shown,
    }
    if is_htmx(request.headers):
        return html("creating/past.html", **values)
    imports = await _imports(services, experiment)
    return page(
        request,
        "creating/history.html",
        422 if values["wrong"] else 200,
        name=public_name(experiment.name),
        experiment=experiment,
        refusal=_refusal(experiment),
        imports=[{**json.loads(each.payload), "at": each.created_at} for each in imports][::-1],
        head=experiment.head_offset,
        **values,
    )


def _refusal(experiment: Experiment) -> str | None:
    """Why the experiment takes no history, if it does not."""
    try:
        history_shape(ExperimentSpec.of(experiment))
    except TableError as error:
        return error.detail
    return None
