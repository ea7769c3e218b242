"""Experiments: create, list, show, open the target, and where they stand."""

import asyncio
import dataclasses
from typing import Any

from fastapi import APIRouter, Request, Response

from model import ContextKind
from service.auth.tenants import public_name
from service.codec import answers, requests
from service.codec.bodies import ExperimentBody, PhaseBody
from service.errors import InvalidRequest, PhaseConflict, RequestConflict, refuse
from service.experiment_spec import Durability, ExperimentSpec
from service.records import (
    Experiment,
    LearningFailure,
    Phase,
    SnapshotRecord,
    phase_event,
)
from service.routes import CallerDep, ExperimentDep, ServicesDep, body_of, json_answer
from service.routes.documentation import body, problems

# What the trainer counts, before it has counted anything.
COUNTS = ("decisions", "source_rewards", "folded_rewards", "target_contexts")

router = APIRouter(prefix="/experiments", tags=["experiments"])


@router.post(
    "",
    status_code=201,
    response_model=answers.Experiment,
    responses=problems(409, has_body=True),
    openapi_extra=body(requests.ExperimentRequest),
)
async def create_experiment(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Create an experiment; its name identifies it everywhere."""
    spec = _declared(await body_of(request, ExperimentBody))
    spec.check()
    spec.check_budget(services.limits)
    name = caller.tenant_scope.new_full_name(spec.name)
    await asyncio.to_thread(spec.prove)
    return json_answer(answer_of(await services.experiments.create(name, **spec.row())), 201)


@router.get("", response_model=answers.ExperimentList, responses=problems())
async def list_experiments(services: ServicesDep, caller: CallerDep) -> Response:
    """All experiments, the oldest first."""
    found = await services.experiments.list(caller.tenant_scope)
    return json_answer({"experiments": [answer_of(each) for each in found]})


@router.get("/{name}", response_model=answers.Experiment, responses=problems(404))
async def show_experiment(experiment: ExperimentDep) -> Response:
    """An experiment: what was declared, and the whole configuration in force."""
    return json_answer(answer_of(experiment))


@router.post(
    "/{name}/phase",
    response_model=answers.PhaseChanged,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(requests.PhaseRequest),
)
async def change_phase(
    experiment: ExperimentDep, request: Request, services: ServicesDep, caller: CallerDep
) -> Response:
    """Open the target for rewards, for good: `{"phase": "continued"}`."""
    told = await body_of(request, PhaseBody)
    try:
        phase = Phase(told.phase)
    except ValueError:
        refuse(f"Must be {Phase.CONTINUED}.", "#/phase")
    if phase is not Phase.CONTINUED:
        raise PhaseConflict
    event = phase_event(experiment.experiment_id, phase, told.best_reward, caller.key_id)
    try:
        (appended,) = await services.event_log.append([event])
    except RequestConflict:
        raise PhaseConflict from None
    services.bus.wake(experiment.name)
    return json_answer(
        {
            "experiment": public_name(experiment.name),
            "phase": phase.value,
            "best_reward": told.best_reward,
            "offset": appended.event.offset,
            "status": "created" if appended.created else "already_recorded",
        }
    )


@router.get("/{name}/state", response_model=answers.State, responses=problems(404))
async def show_state(experiment: ExperimentDep, services: ServicesDep) -> Response:
    """Counts, versions and lag, with what the trainer noted in its newest snapshot."""
    newest = await services.snapshots.list(experiment.experiment_id, limit=1)
    failure = await services.failures.get(experiment.experiment_id)
    return json_answer(state_answer(experiment, newest[0] if newest else None, failure))


def state_answer(
    experiment: Experiment,
    newest: SnapshotRecord | None,
    failure: LearningFailure | None = None,
) -> dict[str, Any]:
    """Where an experiment stands; the trainer's notes never hide what is known for certain."""
    note = dict(newest.note) if newest else {}
    counts = dict.fromkeys(COUNTS, 0) | note.pop("counts", {})
    updates = {
        "due_updates": note.pop("due_updates", 0),
        "running": note.pop("running_update", None),
    }
    folded = newest.offset if newest else 0
    return {
        **note,
        "experiment": public_name(experiment.name),
        "phase": experiment.phase.value,
        "status": experiment.status.value,
        "counts": counts,
        "policy_version": newest.version if newest else 0,
        "encoder_version": newest.encoder_version if newest else 0,
        "state_hash": newest.state_hash if newest else None,
        "head_offset": experiment.head_offset,
        "folded_offset": folded,
        "lag": experiment.head_offset - folded,
        "snapshot_at": newest.created_at if newest else None,
        "training": _training(failure, is_running=bool(note.get("is_training"))) | updates,
    }


def _training(failure: LearningFailure | None, *, is_running: bool) -> dict[str, Any]:
    if failure is None:
        return {"status": "running" if is_running else "idle"}
    return {
        "status": "failing",
        "stage": failure.stage.value,
        "reason": failure.reason,
        "failures": failure.failures,
        "since": failure.since,
        "retry_at": failure.retry_at,
    }


def _declared(told: ExperimentBody) -> ExperimentSpec:
    try:
        kind = ContextKind(told.context.kind)
    except ValueError:
        refuse(f"Must be one of {', '.join(ContextKind)}.", "#/context/kind")
    try:
        durability = Durability(told.durability)
    except ValueError:
        refuse(f"Must be one of {', '.join(Durability)}.", "#/durability")
    return ExperimentSpec(
        name=told.name,
        arms=tuple(told.arms),
        context_kind=kind,
        context_shape=tuple(told.context.shape),
        method=told.method,
        seed=told.seed,
        config=told.config,
        fallback_arm=told.fallback_arm,
        durability=durability,
    )


def answer_of(experiment: Experiment) -> dict[str, Any]:
    """An experiment as callers see it."""
    spec = ExperimentSpec.of(experiment)
    declared = {
        "name": spec.name,
        "arms": spec.arms,
        "context": {"kind": spec.context_kind.value, "shape": spec.context_shape},
        "method": spec.method,
        "seed": spec.seed,
        "config": spec.config,
        "fallback_arm": spec.fallback_arm,
        "durability": spec.durability,
    }
    return {
        **declared,
        "experiment_id": experiment.experiment_id,
        "config": _config_in_force(spec),
        "recipe": spec.recipe,
        "declared": declared,
        "phase": experiment.phase.value,
        "status": experiment.status.value,
        "created_at": experiment.created_at,
    }


def _config_in_force(spec: ExperimentSpec) -> dict[str, Any]:
    try:
        return dataclasses.asdict(spec.bandit_config())
    except InvalidRequest:
        # No build can run it, which its state says; it must not hide the others in a list.
        return dict(spec.config)
