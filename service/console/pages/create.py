"""Creating an experiment from what a person types."""

from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from model import SYSTEMS
from service.columns.schema import ColumnType
from service.console.creating.declaring import Typed
from service.console.creating.forms import actor_of, errors_by_field, form_of, text_of
from service.console.rendering import page, place_of
from service.errors import ExperimentExists, InvalidRequest, NotGranted, TooManyExperiments
from service.routes import CallerDep, ServicesDep
from service.routes.experiments import checked

router = APIRouter(include_in_schema=False)


@router.get("/console/create")
async def create_page(request: Request) -> Response:
    """The form."""
    return _page(request, Typed.fresh())


@router.post("/console/create")
async def create(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Create the experiment; or show the form with another row of columns, or one less."""
    async with form_of(request) as form:
        typed, act = Typed.of(form), text_of(form, "act")
        if act != "create":
            return _page(request, typed.changed(act), is_adding=act == "add")
        try:
            actor = actor_of(form, caller.key_id)
            name, spec = await checked(services, caller, typed.declared(form))
            made = await services.experiments.create(name, **spec.row(), actor=actor)
        except InvalidRequest as error:
            return _page(request, typed, 422, wrong=errors_by_field(error))
        except (ExperimentExists, NotGranted, TooManyExperiments) as error:
            return _page(request, typed, error.status, wrong={"name": error.detail})
    return RedirectResponse(place_of(made, "create"), 303)


def _page(request: Request, typed: Typed, code: int = 200, /, **shown: Any) -> Response:
    return page(
        request,
        "creating/create.html",
        code,
        typed=typed,
        methods=list(SYSTEMS),
        types=list(ColumnType),
        **{"wrong": {}, "is_adding": False, **shown},
    )
