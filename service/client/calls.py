"""The requests of the clients and the decoding of answers, without I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec
import numpy as np
from pydantic import BaseModel

from service.codec import answers, requests
from service.records import uuid7

Result = TypeVar("Result", bound=BaseModel | bytes)
# Numbers in the experiment's shape, or a mapping from arms to such numbers.
Context = Any
MEDIA_TYPE = "application/msgpack"
RAW = "application/octet-stream"
LONG_SECONDS = 300.0


class ProblemError(Exception):
    """The service refused a call; `slug` names the problem."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.slug = str(problem.get("type", "")).rpartition("/")[2]
        super().__init__(f"{status} {self.slug}: {problem.get('detail', '')}")


@dataclass(frozen=True, slots=True)
class Call(Generic[Result]):
    """One request and the type of its answer: a model, or bytes for a file.

    `timeout_seconds` overrides the client's.
    """

    method: str
    path: str
    answer: type[Result]
    body: Any = None
    timeout_seconds: float | None = None

    @property
    def media(self) -> str:
        return RAW if isinstance(self.body, bytes) else MEDIA_TYPE

    @property
    def content(self) -> bytes | None:
        if self.body is None or isinstance(self.body, bytes):
            return self.body
        return msgspec.msgpack.encode(self.body)

    def read(self, response: httpx.Response) -> Result:
        """The answer; raises `ProblemError`."""
        raise_for_problem(response)
        kind: Any = self.answer
        decode = kind.model_validate_json if issubclass(kind, BaseModel) else kind
        found: Result = decode(response.content)
        return found


@dataclass(frozen=True, slots=True)
class Round:
    """A round to decide; a request id makes a retry safe."""

    source: Context = None
    target: Context = None
    eligible_arms: Sequence[str] | None = None
    request_id: str | None = None

    def body(self) -> dict[str, Any]:
        sides = {"source": self.source, "target": self.target}
        found: dict[str, Any] = {"request_id": self.request_id or uuid7()}
        found |= {name: _side(given) for name, given in sides.items() if given is not None}
        if self.eligible_arms is not None:
            found["eligible_arms"] = list(self.eligible_arms)
        return found


def raise_for_problem(response: httpx.Response) -> None:
    """Raise `ProblemError` for a refusal."""
    if response.is_success:
        return
    try:
        problem = response.json()
    except ValueError:
        problem = {"detail": response.reason_phrase}
    raise ProblemError(response.status_code, problem if isinstance(problem, dict) else {})


def create_experiment(wanted: requests.ExperimentRequest) -> Call[answers.Experiment]:
    """Create an experiment."""
    return Call("POST", "/experiments", answers.Experiment, wanted.model_dump())


def is_as_wanted(wanted: requests.ExperimentRequest, found: answers.Experiment) -> bool:
    """Whether an existing experiment equals the one to create."""
    return wanted.model_dump() == found.declared.model_dump()


def experiment(name: str) -> Call[answers.Experiment]:
    """Show an experiment."""
    return Call("GET", f"/experiments/{name}", answers.Experiment)


def experiments() -> Call[answers.ExperimentList]:
    """List all experiments."""
    return Call("GET", "/experiments", answers.ExperimentList)


def set_status(
    name: str, status: requests.Status, by: str | None = None, reason: str | None = None
) -> Call[answers.Experiment]:
    """Pause, archive or resume."""
    body = {"status": status, "by": by, "reason": reason}
    return Call("PATCH", f"/experiments/{name}", answers.Experiment, body)


def delete_experiment(
    name: str, by: str | None = None, reason: str | None = None
) -> Call[answers.Deleted]:
    """Delete an experiment permanently."""
    given = {"confirm": name, "by": by, "reason": reason}
    query = urlencode({key: value for key, value in given.items() if value is not None})
    return Call("DELETE", f"/experiments/{name}?{query}", answers.Deleted)


def acts(limit: int = 100) -> Call[answers.Acts]:
    """Administrative acts on experiments, including deleted ones."""
    return Call("GET", f"/audit?limit={limit}", answers.Acts)


def select(name: str, round_: Round) -> Call[answers.Selected]:
    """Decide one round."""
    return Call("POST", "/select", answers.Selected, {"experiment": name, **round_.body()})


def select_many(name: str, rounds: Iterable[Round]) -> Call[answers.SelectedBatch]:
    """Decide many rounds."""
    body = {"experiment": name, "rounds": [round_.body() for round_ in rounds]}
    return Call("POST", "/select/batch", answers.SelectedBatch, body)


def reward(decision_id: str, value: float) -> Call[answers.Rewarded]:
    """Report a reward."""
    body = {"decision_id": decision_id, "reward": float(value)}
    return Call("POST", "/reward", answers.Rewarded, body)


def reward_many(rewards: Mapping[str, float]) -> Call[answers.RewardedBatch]:
    """Report the rewards of many decisions."""
    reported = [{"decision_id": each, "reward": float(value)} for each, value in rewards.items()]
    return Call("POST", "/reward/batch", answers.RewardedBatch, {"rewards": reported})


def state(name: str) -> Call[answers.State]:
    """The state of an experiment."""
    return Call("GET", f"/experiments/{name}/state", answers.State)


def snapshots(name: str) -> Call[answers.SnapshotList]:
    """All kept snapshots."""
    return Call("GET", f"/experiments/{name}/snapshots", answers.SnapshotList)


def restore(
    name: str, version: int, by: str | None = None, reason: str | None = None
) -> Call[answers.Restored]:
    """Roll back to a version."""
    path = f"/experiments/{name}/snapshots/{version}/restore"
    body = {"request_id": uuid7(), "by": by, "reason": reason}
    return Call("POST", path, answers.Restored, body)


def target_select(
    name: str,
    contexts: Any,
    confidence_floor: float | None = None,
    store: bool = False,
    request_id: str | None = None,
) -> Call[answers.TargetSelected]:
    """Decide with the target policy; contexts are an array (n, *shape) or a list."""
    is_array = isinstance(contexts, np.ndarray)
    rows = _numbers(contexts) if is_array else [_target_context(each) for each in contexts]
    body = {"experiment": name, "contexts": rows, "store": store}
    body["request_id"] = request_id or uuid7()
    if confidence_floor is not None:
        body["confidence_floor"] = float(confidence_floor)
    return Call("POST", "/target/select", answers.TargetSelected, body)


def upload_contexts(
    name: str, contexts: Any, request_id: str | None = None
) -> Call[answers.ContextsStored]:
    """Store unlabeled target contexts, (n, *shape)."""
    query = urlencode({"experiment": name, "request_id": request_id or uuid7()})
    body = _numbers(np.asarray(contexts))
    path = f"/target/contexts?{query}"
    return Call("POST", path, answers.ContextsStored, body, timeout_seconds=LONG_SECONDS)


def open_target(name: str, best_reward: float = 1.0) -> Call[answers.PhaseChanged]:
    """Accept target rewards from now on."""
    body = {"phase": "continued", "best_reward": float(best_reward)}
    return Call("POST", f"/experiments/{name}/phase", answers.PhaseChanged, body)


def transfer(name: str) -> Call[answers.Transfer]:
    """The transfer of an experiment."""
    return Call("GET", f"/experiments/{name}/transfer", answers.Transfer)


def audit(name: str) -> Call[answers.AuditTrail]:
    """The audit trail of an experiment."""
    return Call("GET", f"/experiments/{name}/audit", answers.AuditTrail)


def candidates(name: str) -> Call[answers.CandidateList]:
    """Trained encoders that are not served."""
    return Call("GET", f"/experiments/{name}/candidates", answers.CandidateList)


def promote(
    name: str, episode: int, by: str | None = None, reason: str | None = None
) -> Call[answers.Promoted]:
    """Promote a candidate."""
    path = f"/experiments/{name}/candidates/{episode}/promote"
    body = {"request_id": uuid7(), "by": by, "reason": reason}
    return Call("POST", path, answers.Promoted, body)


def train(
    name: str, by: str | None = None, reason: str | None = None
) -> Call[answers.TrainingAsked]:
    """Update the encoder now."""
    body = {"request_id": uuid7(), "by": by, "reason": reason}
    return Call("POST", f"/experiments/{name}/train", answers.TrainingAsked, body)


def policy(name: str, version: int) -> Call[bytes]:
    """The target policy of a version, as a file."""
    path = f"/experiments/{name}/snapshots/{version}/policy"
    return Call("GET", path, bytes, timeout_seconds=LONG_SECONDS)


def report(name: str) -> Call[bytes]:
    """The transfer report, as a page."""
    return Call("GET", f"/experiments/{name}/report", bytes, timeout_seconds=LONG_SECONDS)


def _target_context(given: Context) -> Any:
    if isinstance(given, Mapping):
        return {arm: _numbers(context) for arm, context in given.items()}
    return given.tolist() if isinstance(given, np.ndarray) else given


def _side(given: Context) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return {"contexts": {arm: _numbers(context) for arm, context in given.items()}}
    return {"context": _numbers(given)}


def _numbers(context: Context) -> Any:
    """Arrays as float32 bytes, which are the fastest to read; lists unchanged."""
    if not isinstance(context, np.ndarray):
        return context
    with np.errstate(over="ignore"):
        return context.astype("<f4").tobytes()
