"""What the clients send and how they read the answers, without any I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import httpx
import msgspec
import numpy as np
from pydantic import BaseModel

from service import request_schemas, schemas
from service.records import uuid7

Answer = TypeVar("Answer", bound=BaseModel)
# Numbers in the experiment's shape, or a mapping from arms to such numbers.
Context = Any
MEDIA_TYPE = "application/msgpack"


class ProblemError(Exception):
    """The service refused a call; `slug` names the problem."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.slug = str(problem.get("type", "")).rpartition("/")[2]
        super().__init__(f"{status} {self.slug}: {problem.get('detail', '')}")


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer]):
    """One request and the type of its answer."""

    method: str
    path: str
    answer: type[Answer]
    body: Any = None

    @property
    def content(self) -> bytes | None:
        """The body as it is sent."""
        return None if self.body is None else msgspec.msgpack.encode(self.body)

    def read(self, response: httpx.Response) -> Answer:
        """The answer, or `ProblemError`."""
        raise_for_problem(response)
        return self.answer.model_validate_json(response.content)


@dataclass(frozen=True, slots=True)
class Round:
    """A round to select for; an id of its own makes it safe to send again."""

    source: Context = None
    target: Context = None
    eligible_arms: Sequence[str] | None = None
    request_id: str | None = None

    def body(self) -> dict[str, Any]:
        """As the service reads it."""
        sides = {"source": self.source, "target": self.target}
        found: dict[str, Any] = {"request_id": self.request_id or uuid7()}
        found |= {name: _side(given) for name, given in sides.items() if given is not None}
        if self.eligible_arms is not None:
            found["eligible_arms"] = list(self.eligible_arms)
        return found


def raise_for_problem(response: httpx.Response) -> None:
    """Raise what a refusal says."""
    if response.is_success:
        return
    try:
        problem = response.json()
    except ValueError:
        problem = {"detail": response.reason_phrase}
    raise ProblemError(response.status_code, problem if isinstance(problem, dict) else {})


def create_experiment(wanted: request_schemas.ExperimentRequest) -> Call[schemas.Experiment]:
    """Create an experiment."""
    return Call("POST", "/experiments", schemas.Experiment, wanted.model_dump())


def is_as_wanted(wanted: request_schemas.ExperimentRequest, found: schemas.Experiment) -> bool:
    """Whether an experiment that exists is the one to create."""
    return wanted.model_dump() == found.model_dump(include=set(wanted.model_dump()))


def experiment(name: str) -> Call[schemas.Experiment]:
    """Show an experiment."""
    return Call("GET", f"/experiments/{name}", schemas.Experiment)


def experiments() -> Call[schemas.ExperimentList]:
    """List all experiments."""
    return Call("GET", "/experiments", schemas.ExperimentList)


def set_status(name: str, status: request_schemas.Status) -> Call[schemas.Experiment]:
    """Pause or resume."""
    return Call("PATCH", f"/experiments/{name}", schemas.Experiment, {"status": status})


def select(name: str, round_: Round) -> Call[schemas.Selected]:
    """Decide one round."""
    return Call("POST", "/select", schemas.Selected, {"experiment": name, **round_.body()})


def select_many(name: str, rounds: Iterable[Round]) -> Call[schemas.SelectedBatch]:
    """Decide many rounds."""
    body = {"experiment": name, "rounds": [round_.body() for round_ in rounds]}
    return Call("POST", "/select/batch", schemas.SelectedBatch, body)


def reward(decision_id: str, value: float) -> Call[schemas.Rewarded]:
    """Report a reward."""
    body = {"decision_id": decision_id, "reward": float(value)}
    return Call("POST", "/reward", schemas.Rewarded, body)


def reward_many(rewards: Mapping[str, float]) -> Call[schemas.RewardedBatch]:
    """Report the rewards of many decisions."""
    told = [{"decision_id": each, "reward": float(value)} for each, value in rewards.items()]
    return Call("POST", "/reward/batch", schemas.RewardedBatch, {"rewards": told})


def state(name: str) -> Call[schemas.State]:
    """Where an experiment stands."""
    return Call("GET", f"/experiments/{name}/state", schemas.State)


def snapshots(name: str) -> Call[schemas.SnapshotList]:
    """The snapshots that are kept."""
    return Call("GET", f"/experiments/{name}/snapshots", schemas.SnapshotList)


def restore(name: str, version: int) -> Call[schemas.Restored]:
    """Roll back to a version."""
    path = f"/experiments/{name}/snapshots/{version}/restore"
    return Call("POST", path, schemas.Restored, {"request_id": uuid7()})


def _side(given: Context) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {"contexts": {arm: _numbers(context) for arm, context in given.items()}}
    return {"context": _numbers(given)}


def _numbers(context: Context) -> Any:
    """Arrays travel as float32 bytes, which cost least to read; lists as they are."""
    if not isinstance(context, np.ndarray):
        return context
    with np.errstate(over="ignore"):
        return context.astype("<f4").tobytes()
