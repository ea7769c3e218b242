"""The list of experiments."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.auth.keys import Scope
from service.auth.tenants import public_name
from service.console.drawing import sparkline
from service.console.figures import FEW_POINTS, Facts, facts_of
from service.console.rendering import page
from service.records import Experiment, Status
from service.routes import CallerDep, ServicesDep

PAGE = 20  # experiments

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=128)]
Number = Annotated[int, Query(ge=1, le=1_000_000)]


@router.get("/console")
async def experiments_page(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    q: Text = "",
    status: Text = "",
    number: Number = 1,
) -> Response:
    """The newest experiments first, some at a time."""
    everything = await services.experiments.list(caller.tenant_scope)
    found = [each for each in reversed(everything) if _is_wanted(each, q, status)]
    shown = found[PAGE * (number - 1) : PAGE * number]
    rows = [_row(await facts_of(services, each, FEW_POINTS)) for each in shown]
    return page(
        request,
        "experiments.html",
        rows=rows,
        total=len(everything),
        found=len(found),
        q=q,
        status=status,
        statuses=[Status.ACTIVE, Status.PAUSED, Status.ARCHIVED],
        number=number,
        pages=-(-len(found) // PAGE),
        can_create=Scope.ADMIN in caller.scopes,
    )


def _is_wanted(experiment: Experiment, text: str, status: str) -> bool:
    is_found = text.strip().lower() in public_name(experiment.name).lower()
    return is_found and status in ("", experiment.status.value)


def _row(facts: Facts) -> dict[str, Any]:
    line = sparkline(facts.means, *facts.spec.unit)
    return {"name": public_name(facts.experiment.name), "facts": facts, "line": line}
