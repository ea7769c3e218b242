"""The log of an experiment, page by page."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request, Response

from service.auth.tenants import public_name
from service.codec.log_answers import LogFilters, LogQuery
from service.console.creating.forms import query_of
from service.console.rendering import page
from service.experiment_spec import ExperimentSpec
from service.pages.lights import Light
from service.routes import ExperimentDep, ServicesDep
from service.routes.browsing.decision import decision_again
from service.routes.browsing.export import exported
from service.routes.browsing.log import MAX_OFFSET, log_answer

MOST_ARMS = 100  # of a decision

router = APIRouter(prefix="/console/experiments/{name}", include_in_schema=False)

Text = Annotated[str, Query(max_length=128)]


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of the form; an empty text is none."""

    domain: Text = ""
    arm: Text = ""
    rewarded: Text = ""

    def given(self) -> dict[str, str]:
        return {name: text for name, text in asdict(self).items() if text}


@router.get("/log")
async def log_page(
    request: Request,
    experiment: ExperimentDep,
    services: ServicesDep,
    filters: Annotated[Filters, Depends()],
    before: Annotated[int | None, Query(ge=1, le=MAX_OFFSET)] = None,
) -> Response:
    """Decisions with their rewards, the newest first."""
    given = filters.given()
    found = await log_answer(services, experiment, query_of(LogQuery, {**given, "before": before}))
    spec = ExperimentSpec.of(experiment)
    return page(
        request,
        "log/list.html",
        name=public_name(experiment.name),
        experiment=experiment,
        found=found,
        filters=filters,
        query=urlencode(given),
        before=before,
        arms=spec.arms[:200],
        unit=spec.unit,
    )


@router.get("/log/export")
async def export_page(
    experiment: ExperimentDep, services: ServicesDep, filters: Annotated[Filters, Depends()]
) -> Response:
    """What the filters leave of the log as a file, the same that the API gives."""
    return await exported(services, experiment, query_of(LogFilters, filters.given()))


@router.get("/log/{decision_id}")
async def decision_page(
    request: Request, decision_id: str, experiment: ExperimentDep, services: ServicesDep
) -> Response:
    """One decision beside the same one derived again."""
    found = await decision_again(services, experiment, decision_id)
    logged, derived = found["logged"], found["derived"]
    return page(
        request,
        "log/decision.html",
        name=public_name(experiment.name),
        experiment=experiment,
        found=found,
        light=_light(found),
        arms=sorted(logged.probabilities, key=lambda each: -logged.probabilities[each])[:MOST_ARMS],
        pairs=[("logged", logged), *([("derived", derived)] if derived else [])],
        unit=ExperimentSpec.of(experiment).unit,
    )


def _light(found: dict[str, Any]) -> Light:
    if found["derived"] is None:
        return Light.UNKNOWN
    if found["is_equal"]:
        return Light.GOOD
    return Light.CAUTION if found["derived"].arm == found["logged"].arm else Light.BAD
