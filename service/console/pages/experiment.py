"""One experiment: how it learns, what its verdict says, and what a person may do about it."""

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.auth.keys import Caller, Scope
from service.auth.tenants import public_name
from service.console.curves import curve, expected_curve, target_regret_curve
from service.console.drawing import scatter
from service.console.figures import Facts, arm_rows, facts_of, outcomes, tiles
from service.console.live_parts import LivePart, LiveParts
from service.console.pages.acts import DONE
from service.console.rendering import answer, html, page, text_of
from service.records import Experiment
from service.reporting.advice import headline
from service.reporting.figures import (
    configuration_table,
    declaration_table,
    diagnostics_table,
    signs_table,
)
from service.routes import CallerDep, ExperimentDep, FullNameDep, ServicesDep
from service.routes.browsing.learning import latents_answer
from service.routes.transfer import show_report
from service.services import Services

MOST_LATENTS = 300  # of each domain

router = APIRouter(prefix="/console/experiments/{name}", include_in_schema=False)

Word = Annotated[str, Query(max_length=32)]


@router.get("")
async def experiment_page(
    request: Request,
    experiment: ExperimentDep,
    services: ServicesDep,
    caller: CallerDep,
    done: Word = "",
) -> Response:
    """The whole page."""
    parts: LiveParts = request.app.state.live_parts
    parts.forget(experiment.name)
    mark = await _mark(services, experiment)  # before the facts, so that no change is missed
    facts = await facts_of(services, experiment)
    kept = await services.snapshots.list(experiment.experiment_id, limit=200)
    last = facts.transfer["versions"][-1] if facts.transfer["versions"] else None
    return page(
        request,
        "experiment.html",
        **await _live(services, facts, caller, mark),
        done=DONE.get(done),
        signs=signs_table(last["signs"]) if last else None,
        diagnostics=diagnostics_table(last["diagnostics"], facts.spec.unit) if last else None,
        declaration=declaration_table(facts.spec),
        configuration=configuration_table(facts.spec),
        limits=services.request_limits.shown(facts.spec),
        versions=[each for each in kept if each.version != facts.state["policy_version"]],
    )


@router.get("/live")
async def live_part(
    request: Request,
    full_name: FullNameDep,
    services: ServicesDep,
    caller: CallerDep,
    seen: Word = "",
) -> Response:
    """What changes by itself; 204 while it is as it was."""

    async def renewed(kept: LivePart | None) -> LivePart:
        experiment = await services.experiments.get(full_name)
        mark = await _mark(services, experiment)
        if kept is not None and kept.mark == mark:
            return kept
        facts = await facts_of(services, experiment)
        return LivePart(mark, text_of("live.html", **await _live(services, facts, caller, mark)))

    parts: LiveParts = request.app.state.live_parts
    part = await parts.get((full_name, _can_act(caller)), renewed)
    return Response(status_code=204) if seen == part.mark else answer(part.text)


@router.get("/latents")
async def latents_part(experiment: ExperimentDep, services: ServicesDep) -> Response:
    """Both domains' latents, by domain and by arm."""
    found = await latents_answer(services, experiment, MOST_LATENTS)
    points = found["points"]
    by_arm = [each for each in points if each["arm"] is not None]
    return html(
        "latents.html",
        found=found,
        domains=sorted(scatter(points, "domain"), key=lambda each: each.name),
        arms=scatter(by_arm, "arm"),
    )


@router.get("/report")
async def report_page(experiment: ExperimentDep, services: ServicesDep) -> Response:
    """The transfer report, the same that the API gives."""
    return await show_report(experiment, services)


async def _live(services: Services, facts: Facts, caller: Caller, mark: str) -> dict[str, Any]:
    experiment = facts.experiment
    kept = await services.candidates.list(experiment.experiment_id)
    return {
        "name": public_name(experiment.name),
        "facts": facts,
        "answer": headline(facts.transfer, facts.state),
        "tiles": tiles(facts),
        "curve": curve(facts),
        "expected_curve": expected_curve(facts),
        "regret_curve": target_regret_curve(facts),
        "arms": arm_rows(facts),
        "outcomes": outcomes(facts, [each.episode for each in kept]),
        "can_act": _can_act(caller),
        "mark": mark,
    }


def _can_act(caller: Caller) -> bool:
    return Scope.ADMIN in caller.scopes


async def _mark(services: Services, experiment: Experiment) -> str:
    """A short text that changes with what the page shows."""
    newest = await services.snapshots.list(experiment.experiment_id, limit=1)
    failure = await services.failures.get(experiment.experiment_id)
    judged = newest[0].encoder_version if newest else 0
    facts = (
        experiment.head_offset,
        experiment.status.value,
        newest[0].version if newest else 0,
        newest[0].note.get("is_training") if newest else None,
        await services.transfers.has(experiment.experiment_id, judged),
        failure and failure.failures,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
