"""Administrative acts on experiments: pause, resume, archive, train, delete, and their audit trail."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from model import Cause
from service.auth.tenants import public_name
from service.codec import answers, requests
from service.codec.bodies import StatusBody
from service.errors import NothingToTrainOn, refuse
from service.records import Actor, AuditRecord, EventKind, Experiment, Status
from service.routes import CallerDep, ExperimentDep, Limit, ServicesDep, body_of, json_answer
from service.routes.audit import Audit, audit_of, logged
from service.routes.documentation import body, problems
from service.routes.experiments import full_answer
from service.services import Services

SETTABLE = (Status.ACTIVE, Status.PAUSED, Status.ARCHIVED)

router = APIRouter(tags=["experiments"])

Confirm = Annotated[str, Query(description="the experiment's name, again")]
Remark = Annotated[str | None, Query(max_length=500)]


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
    return json_answer(full_answer(services, changed))


@router.post(
    "/experiments/{name}/train",
    status_code=202,
    response_model=answers.TrainingAsked,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(requests.AuditRequest, is_required=False),
)
async def train_now(experiment: ExperimentDep, request: Request, services: ServicesDep) -> Response:
    """Update the encoder with all that has come, after the update under way if there is one."""
    return json_answer(await ask_training(services, experiment, await audit_of(request)), 202)


async def ask_training(services: Services, experiment: Experiment, audit: Audit) -> dict[str, Any]:
    """Write the request to the log, as answered."""
    if not await _has_reward(services, experiment.experiment_id):
        raise NothingToTrainOn
    facts = {"cause": Cause.REQUEST.value}
    event = audit.event(experiment.experiment_id, EventKind.TRAINING, facts, "train")
    return await logged(services, experiment, event)


async def _has_reward(services: Services, experiment_id: str) -> bool:
    """Whether the trainer has counted a reward, or one waits for it."""
    newest = await services.snapshots.list(experiment_id, limit=1)
    if newest and newest[0].note.get("counts", {}).get("folded_rewards"):
        return True
    return await services.history.has_reward(experiment_id, newest[0].offset if newest else 0)


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
