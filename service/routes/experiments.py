"""Experiments: create, list, show, change the phase, show the state."""

import asyncio
import dataclasses
from typing import Any

from fastapi import APIRouter, Request, Response

from model import ContextKind
from service.auth.keys import Caller
from service.auth.tenants import public_name
from service.codec import answers, requests
from service.codec.bodies import ContextBody, ExperimentBody, PhaseBody
from service.codec.contexts import refuse_column
from service.columns.resolving import resolved
from service.columns.rows import RowPlan, encoded_rows
from service.columns.schema import TableError, TableSchema
from service.errors import InvalidRequest, PhaseConflict, RequestConflict, refuse
from service.experiment_spec import Durability, ExperimentSpec, range_of
from service.images.schema import ImageError, ImageSchema
from service.records import (
    Actor,
    Experiment,
    LearningFailure,
    Phase,
    SnapshotRecord,
    phase_event,
)
from service.routes import CallerDep, ExperimentDep, ServicesDep, body_of, json_answer
from service.routes.audit import logged
from service.routes.documentation import body, problems
from service.services import Services

# The trainer's counts, which are 0 before the first snapshot.
COUNTS = ("decisions", "source_rewards", "folded_rewards", "target_contexts")

TABLE, IMAGE = "table", "image"  # kinds of contexts that are encoded before the model sees them

router = APIRouter(prefix="/experiments", tags=["experiments"])


@router.post(
    "",
    status_code=201,
    response_model=answers.Experiment,
    responses=problems(409, has_body=True),
    openapi_extra=body(requests.ExperimentRequest),
)
async def create_experiment(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Create an experiment, identified by its name."""
    name, spec = await checked(services, caller, await body_of(request, ExperimentBody))
    created = await services.experiments.create(name, **spec.row())
    return json_answer(full_answer(services, created), 201)


async def checked(
    services: Services, caller: Caller, wanted: ExperimentBody
) -> tuple[str, ExperimentSpec]:
    """The full name and the declaration of a new experiment, which can be created and served."""
    # In a thread: a sample may have many cells, and the others' requests must not wait for it.
    spec = await asyncio.to_thread(_declared, wanted)
    spec.check()
    spec.check_budget(services.limits)
    name = caller.tenant_scope.new_full_name(spec.name)
    await asyncio.to_thread(spec.prove)
    return name, spec


@router.get("", response_model=answers.ExperimentList, responses=problems())
async def list_experiments(services: ServicesDep, caller: CallerDep) -> Response:
    """All experiments, the oldest first."""
    found = await services.experiments.list(caller.tenant_scope)
    return json_answer({"experiments": [answer_of(each) for each in found]})


@router.get("/{name}", response_model=answers.Experiment, responses=problems(404))
async def show_experiment(experiment: ExperimentDep, services: ServicesDep) -> Response:
    """An experiment: its declaration, its complete configuration and its largest batches."""
    return json_answer(full_answer(services, experiment))


@router.post(
    "/{name}/phase",
    response_model=answers.PhaseChanged,
    responses=problems(404, 409, has_body=True),
    openapi_extra=body(requests.PhaseRequest),
)
async def change_phase(
    experiment: ExperimentDep, request: Request, services: ServicesDep, caller: CallerDep
) -> Response:
    """Accept target rewards from now on, irrevocably: `{"phase": "continued"}`."""
    wanted = await body_of(request, PhaseBody)
    if wanted.phase == Phase.ZERO_SHOT:
        raise PhaseConflict
    if wanted.phase != Phase.CONTINUED:
        refuse(f"Must be {Phase.CONTINUED}.", "#/phase")
    actor = Actor(wanted.by, wanted.reason, caller.key_id)
    return json_answer(await open_target(services, experiment, wanted.best_reward, actor))


async def open_target(
    services: Services, experiment: Experiment, best_reward: float, actor: Actor
) -> dict[str, Any]:
    """Write the change of the phase to the log, as answered."""
    event = phase_event(experiment.experiment_id, best_reward, actor)
    try:
        found = await logged(services, experiment, event)
    except RequestConflict:
        raise PhaseConflict from None
    return {**found, "phase": Phase.CONTINUED.value, "best_reward": best_reward}


@router.get("/{name}/state", response_model=answers.State, responses=problems(404))
async def show_state(experiment: ExperimentDep, services: ServicesDep) -> Response:
    """Counts, versions and lag, with the trainer's notes of its newest snapshot."""
    return json_answer(await state_answer(services, experiment))


async def state_answer(services: Services, experiment: Experiment) -> dict[str, Any]:
    """The state of an experiment, as answered."""
    newest = await services.snapshots.list(experiment.experiment_id, limit=1)
    failure = await services.failures.get(experiment.experiment_id)
    found = state_from(experiment, newest[0] if newest else None, failure)
    version = found["encoder_version"]
    if version and await services.transfers.has(experiment.experiment_id, version):
        found["training"]["judgement"] = "done"
    return found


def state_from(
    experiment: Experiment, newest: SnapshotRecord | None, failure: LearningFailure | None
) -> dict[str, Any]:
    """The state by these records; database facts override the trainer's notes."""
    note = dict(newest.note) if newest else {}
    counts = dict.fromkeys(COUNTS, 0) | note.pop("counts", {})
    updates = {
        "due_updates": note.pop("due_updates", 0),
        "running": note.pop("running_update", None),
        "judgement": note.pop("judgement", "none"),
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


def _declared(body: ExperimentBody) -> ExperimentSpec:
    context = body.context
    table = _table(context) if context.kind == TABLE else None
    image = _image(context) if context.kind == IMAGE else None
    try:
        durability = Durability(body.durability)
    except ValueError:
        refuse(f"Must be one of {', '.join(Durability)}.", "#/durability")
    return ExperimentSpec(
        name=body.name,
        arms=tuple(body.arms),
        context_kind=_kind(context),
        context_shape=_shape(context) if table is None else (table.width,),
        method=body.method,
        seed=body.seed,
        config=body.config,
        fallback_arm=body.fallback_arm,
        durability=durability,
        table=table,
        reward_range=range_of(body.reward_range),
        image=image,
    )


def _kind(context: ContextBody) -> ContextKind:
    """How the model sees contexts; fields that the kind does not have are refused."""
    allowed = {TABLE: ("columns", "sample", "per_arm"), IMAGE: ("per_arm", "resize")}
    if context.kind not in (*ContextKind, *allowed):
        refuse(f"Must be one of {', '.join((*ContextKind, *allowed))}.", "#/context/kind")
    for name in ("columns", "sample", "per_arm", "resize"):
        if getattr(context, name) and name not in allowed.get(context.kind, ()):
            kinds = " or ".join(each for each in allowed if name in allowed[each])
            refuse(f"Only contexts of kind {kinds} have this.", f"#/context/{name}")
    if context.kind in allowed:
        return ContextKind.PER_ARM if context.per_arm else ContextKind.SHARED
    return ContextKind(context.kind)


def _shape(context: ContextBody) -> tuple[int, ...]:
    if context.shape is None:
        refuse("The shape of a context is declared.", "#/context/shape")
    return tuple(context.shape)


def _image(context: ContextBody) -> ImageSchema:
    try:
        return ImageSchema.of(_shape(context), resize=context.resize)
    except ImageError as error:
        refuse(str(error), "#/context/shape")


def _table(context: ContextBody) -> TableSchema:
    try:
        table = resolved(context.columns, context.sample or ())
    except TableError as error:
        refuse_column(error, "#/context/columns")
    try:
        encoded_rows(RowPlan(table), context.sample or ())
    except TableError as error:
        refuse_column(error, f"#/context/sample/{error.row}")
    if context.shape is not None and tuple(context.shape) != (table.width,):
        refuse("The shape of a table follows from its columns: leave it out.", "#/context/shape")
    return table


def _context_answer(spec: ExperimentSpec) -> dict[str, Any]:
    facts = spec.context_facts()
    if spec.table is not None:
        return {**facts, "kind": TABLE, "per_arm": spec.is_per_arm}
    image = facts.pop("image", None)
    return facts if image is None else {**facts, "kind": IMAGE, "per_arm": spec.is_per_arm, **image}


def answer_of(experiment: Experiment) -> dict[str, Any]:
    """An experiment as callers see it."""
    spec = ExperimentSpec.of(experiment)
    declared = {
        "name": spec.name,
        "arms": spec.arms,
        "context": _context_answer(spec),
        "method": spec.method,
        "seed": spec.seed,
        "config": spec.config,
        "fallback_arm": spec.fallback_arm,
        "durability": spec.durability,
        "reward_range": spec.reward_range,
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


def full_answer(services: Services, experiment: Experiment) -> dict[str, Any]:
    """An experiment as callers see it, with its largest batches."""
    limits = services.request_limits.shown(ExperimentSpec.of(experiment))
    return {**answer_of(experiment), "limits": limits}


def _config_in_force(spec: ExperimentSpec) -> dict[str, Any]:
    try:
        return dataclasses.asdict(spec.bandit_config())
    except InvalidRequest:
        # This build cannot run it, as its state shows; a list must still show the others.
        return dict(spec.config)
