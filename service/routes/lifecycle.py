"""Administrative acts on experiments: pause, resume, archive, delete, and their audit trail."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.auth.tenants import public_name
from service.codec import answers, requests
from service.codec.bodies import StatusBody
from service.errors import refuse
from service.records import Actor, AuditRecord, Status
from service.routes import CallerDep, ExperimentDep, ServicesDep, body_of, json_answer
from service.routes.documentation import body, problems
from service.routes.experiments import answer_of

SETTABLE = (Status.ACTIVE, Status.PAUSED, Status.ARCHIVED)

router = APIRouter(tags=["experiments"])

Confirm = Annotated[str, Query(description="the experiment's name, again")]
Remark = Annotated[str | None, Query(max_length=500)]
Limit = Annotated[int, Query(ge=1, le=1000)]


@router.patch(
    "/experiments/{name}",
    response_model=answers.Experiment,
    responses=problems(404, has_body=True),
    openapi_extra=body(requests.StatusRequest),
)
async def change_experiment(
    experiment: ExperimentDep, request: Request, services: ServicesDep, caller: CallerDep
) -> Response:
    """Pause (`paused`: only rewards), archive (`archived`: nothing new) or resume (`active`)."""
    asked = await body_of(request, StatusBody)
    if asked.status not in SETTABLE:
        refuse(f"Must be one of {', '.join(SETTABLE)}.", "#/status")
    actor = Actor(asked.by, asked.reason, caller.key_id)
    changed = await services.experiments.set_status(experiment.name, Status(asked.status), actor)
    return json_answer(answer_of(changed))


@router.delete(
    "/experiments/{name}",
    status_code=202,
    response_model=answers.Deleted,
    responses=problems(404, 422),
)
async def delete_experiment(
    experiment: ExperimentDep,
    services: ServicesDep,
    caller: CallerDep,
    confirm: Confirm = "",
    by: Remark = None,
    reason: Remark = None,
) -> Response:
    """Delete an experiment permanently; its data is erased soon after."""
    name = public_name(experiment.name)
    if confirm != name:
        refuse("Must be the name of the experiment to delete.", "#/confirm")
    actor = Actor(by, reason, caller.key_id)
    deleted = await services.experiments.delete(experiment.name, actor)
    services.policies.forget(deleted.name)
    await services.bus.forget(deleted)
    found = {"experiment": name, "experiment_id": deleted.experiment_id, "status": "deleted"}
    return json_answer(found, 202)


@router.get("/audit", response_model=answers.Acts, responses=problems())
async def show_acts(services: ServicesDep, caller: CallerDep, limit: Limit = 100) -> Response:
    """Administrative acts on the caller's experiments, including deleted ones, the newest first."""
    found = await services.audit.newest(caller.tenant_scope, limit)
    return json_answer({"entries": [_act(each) for each in found]})


def _act(record: AuditRecord) -> dict[str, Any]:
    return {
        "experiment": public_name(record.name),
        "experiment_id": record.experiment_id,
        "at": record.created_at,
        "what": record.act,
        "by": record.actor.by,
        "reason": record.actor.reason,
        "key_id": record.actor.key_id,
    }
