"""The service itself: readiness, versions, the trainer's lag, settings and keys."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version

from fastapi import APIRouter, Request, Response

from service.auth.tenants import public_name
from service.console.rendering import page
from service.errors import ServiceError
from service.records import Experiment
from service.routes import CallerDep, ServicesDep
from service.routes.experiments import state_answer
from service.routes.ops import check_ready
from service.services import Services
from service.storage.keys import Keys

MOST_EXPERIMENTS = 50
PACKAGES = ("daband", "torch", "numpy", "fastapi", "sqlalchemy")

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class SystemFacts:
    """What the process was started with: each setting with its value (no secrets) and its meaning."""

    settings: Sequence[tuple[str, str, str]]
    grafana_url: str
    needs_keys: bool


@router.get("/console/system")
async def system_page(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """The page; settings and keys are for the operator."""
    facts: SystemFacts = request.app.state.system_facts
    shown = await services.experiments.list(caller.tenant_scope)
    return page(
        request,
        "system.html",
        problem=await _problem(services),
        facts=facts,
        versions=_versions(),
        learning=[await _lag(services, each) for each in shown[-MOST_EXPERIMENTS:][::-1]],
        settings=facts.settings if caller.is_operator else None,
        keys=await Keys(services.database).list() if caller.is_operator else None,
    )


async def _problem(services: Services) -> str | None:
    try:
        await check_ready(services)
    except ServiceError as error:
        return error.detail
    return None


def _versions() -> Mapping[str, str]:
    return {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}}


async def _lag(services: Services, experiment: Experiment) -> Mapping[str, object]:
    state = await state_answer(services, experiment)
    return {**state, "name": public_name(experiment.name)}
