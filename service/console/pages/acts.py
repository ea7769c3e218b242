"""What a person may do with an experiment; every act goes into the audit trail, with who and why."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Form, Response
from starlette.responses import RedirectResponse

from service.console.rendering import place_of
from service.records import Actor, Experiment, Status, uuid7
from service.routes import CallerDep, ExperimentDep, ServicesDep
from service.routes.audit import Audit
from service.routes.candidates import promote
from service.routes.experiments import open_target
from service.routes.lifecycle import ask_training
from service.routes.snapshots import MAX_VERSION, restore
from service.services import Services

# What a page says after an act.
DONE: Mapping[str, str] = {
    "create": "The experiment is created.",
    "tables": "The experiment is created, and all rows of both tables are in its log. It learns now.",
    "pause": "The experiment is paused: it takes rewards and makes no decisions.",
    "resume": "The experiment is active again.",
    "train": "The training is in the log and begins after what is under way.",
    "promote": "The promotion is in the log; the trainer carries it out when it gets there.",
    "restore": "The restore is in the log; the trainer carries it out when it gets there.",
    "open": "The target is open for rewards, for good.",
}
STATUSES = {"pause": Status.PAUSED, "resume": Status.ACTIVE}

router = APIRouter(prefix="/console/experiments/{name}", include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Act:
    """The form of an act; `number` is the version or the episode that it is about."""

    act: Annotated[Literal["pause", "resume", "train", "promote", "restore", "open"], Form()]
    reason: Annotated[str, Form(min_length=1, max_length=500)]
    by: Annotated[str, Form(max_length=500)] = ""
    number: Annotated[int, Form(ge=0, le=MAX_VERSION)] = 0
    best_reward: Annotated[float, Form(ge=0, le=1)] = 1.0


@router.post("/act")
async def act(
    experiment: ExperimentDep,
    services: ServicesDep,
    caller: CallerDep,
    wanted: Annotated[Act, Depends()],
) -> Response:
    """Carry out one act and show the experiment again."""
    actor = Actor(wanted.by.strip() or None, wanted.reason, caller.key_id)
    await _carry_out(services, experiment, wanted, actor)
    return RedirectResponse(place_of(experiment, wanted.act), 303)


async def _carry_out(services: Services, experiment: Experiment, wanted: Act, actor: Actor) -> None:
    audit = Audit(uuid7(), actor)
    if wanted.act in STATUSES:
        await services.experiments.set_status(experiment.name, STATUSES[wanted.act], actor)
    elif wanted.act == "train":
        await ask_training(services, experiment, audit)
    elif wanted.act == "promote":
        await promote(services, experiment, wanted.number, audit)
    elif wanted.act == "restore":
        await restore(services, experiment, wanted.number, audit)
    else:
        await open_target(services, experiment, wanted.best_reward, actor)
