"""Creating an experiment from two tables: first what they hold, then all of it at once."""

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from fastapi import APIRouter, Request, Response
from starlette.datastructures import FormData
from starlette.responses import RedirectResponse

from model import SYSTEMS
from service.auth.keys import Caller
from service.columns.schema import TableError
from service.console.creating.forms import (
    actor_of,
    errors_by_field,
    form_of,
    has_file,
    sent_table,
    text_of,
)
from service.console.creating.from_tables import created
from service.console.creating.pair_form import AS_FOUND, FORCED, PairTyped, Surveyed, surveyed
from service.console.rendering import html, is_htmx, page, place_of
from service.errors import ExperimentExists, InvalidRequest, NotGranted, TooManyExperiments, refuse
from service.routes import CallerDep, ServicesDep
from service.services import Services

MOST_SHOWN = 200  # columns, and rows of levels

router = APIRouter(include_in_schema=False)


@router.get("/console/create/tables")
async def tables_page(request: Request) -> Response:
    """The form, before there are files."""
    return _answer(request, PairTyped.of(FormData()), None, {})


@router.post("/console/create/tables")
async def from_tables(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Show what the chosen files hold, or create the experiment of them."""
    async with form_of(request) as form:
        typed = PairTyped.of(form)
        with ExitStack() as files:
            return await _from_files(request, services, caller, (form, typed, files))


async def _from_files(
    request: Request,
    services: Services,
    caller: Caller,
    given: tuple[FormData, PairTyped, ExitStack],
) -> Response:
    form, typed, files = given
    found: Surveyed | None = None
    try:
        found = await asyncio.to_thread(_surveyed, form, typed, files)
        if text_of(form, "act") != "create" or found.pair is None:
            return _answer(request, typed, found, {})
        actor = actor_of(form, caller.key_id)
        made = await created(services, form, typed, found, caller, actor)
    except InvalidRequest as error:
        return _answer(request, typed, found, errors_by_field(error))
    except (ExperimentExists, NotGranted, TooManyExperiments) as error:
        return _answer(request, typed, found, {"name": error.detail})
    except TableError as error:
        return _answer(request, typed, found, {"form": str(error)})
    except pa.ArrowException:
        return _answer(request, typed, found, {"form": "A file is damaged."})
    return _leave(request, place_of(made, "tables"))


def _surveyed(form: FormData, typed: PairTyped, files: ExitStack) -> Surveyed:
    for name in ("source", "target"):
        if not has_file(form, name):
            refuse(f"Choose the {name}'s table.", f"#/{name}")
    source, target = (files.enter_context(sent_table(form, name)) for name in ("source", "target"))
    return surveyed(source, target, typed, form)


def _leave(request: Request, place: str) -> Response:
    """Go to a page, by htmx or without it."""
    if is_htmx(request.headers):
        return Response(headers={"HX-Redirect": place})
    return RedirectResponse(place, 303)


def _answer(
    request: Request, typed: PairTyped, found: Surveyed | None, wrong: Mapping[str, str]
) -> Response:
    """The whole page, or for htmx the part below the files, which are kept in the browser."""
    values: dict[str, Any] = {
        "typed": typed,
        "found": found,
        "wrong": wrong,
        "methods": list(SYSTEMS),
        "kinds": (AS_FOUND, *FORCED),
        "columns": found.columns(typed)[:MOST_SHOWN] if found else [],
    }
    if is_htmx(request.headers):
        return html("creating/pair.html", **values)
    is_refused = bool(wrong or (found is not None and found.refusal))
    return page(request, "creating/tables.html", 422 if is_refused else 200, **values)
