"""The frozen values that storage, trainer and routes exchange.

Events are structs, not dataclasses, because creating one is 30 times faster. They cannot form cycles, so
the garbage collector ignores them, which is twice as fast again.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import numpy as np

from model import Domain as Domain, Phase as Phase
from service.errors import refuse

MAX_ID_BYTES = 128
CONTEXT_TYPE = np.dtype("<f4")  # of the numbers of contexts, wherever they are kept as bytes


class EventKind(StrEnum):
    """The kinds of rows in the event log."""

    DECISION = "decision"
    REWARD = "reward"
    CONTEXTS = "contexts"
    PHASE = "phase"
    ACTIVATION = "activation"
    REFUSAL = "refusal"
    CANDIDATE = "candidate"
    PROMOTION = "promotion"
    RESTORE = "restore"
    REFOLD = "refold"
    TRAINING = "training"
    HISTORY = "history"


class Status(StrEnum):
    """What an experiment accepts: everything, only rewards, nothing; or it is being erased."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"
    DELETED = "deleted"


class FailureStage(StrEnum):
    """The stage at which learning fails: training an encoder, or folding the log."""

    TRAINING = "training"
    FOLDING = "folding"


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


def check_identifier(value: str, pointer: str) -> str:
    """The unchanged id; refuses text that a database cannot store. Ids are compared byte for byte."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        refuse("An id must be valid Unicode, without lone surrogates.", pointer)
    if not 1 <= size <= MAX_ID_BYTES:
        refuse(f"An id has 1 to {MAX_ID_BYTES} bytes.", pointer)
    if "\0" in value:
        refuse("An id must not contain NUL.", pointer)
    return value


def uuid7(milliseconds: int | None = None) -> str:
    """A UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, version, variant and 74 random bits."""
    moment = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    return _uuid7(_clock(moment), os.urandom(10).hex())


def uuid7s(count: int) -> list[str]:
    """Ids that rise, so that an index grows at its end."""
    clock = _clock(time.time_ns() // 1_000_000)
    drawn = os.urandom(10 * count).hex()
    return sorted([_uuid7(clock, drawn[at : at + 20]) for at in range(0, len(drawn), 20)])


def _clock(milliseconds: int) -> str:
    digits = f"{milliseconds & (1 << 48) - 1:012x}"
    return f"{digits[:8]}-{digits[8:]}"


def _uuid7(clock: str, drawn: str) -> str:
    variant = "89ab"[int(drawn[4], 16) % 4]
    return f"{clock}-7{drawn[1:4]}-{variant}{drawn[5:8]}-{drawn[8:]}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """One bandit as stored; `spec` is the declaration as JSON text.

    `name` is the full name, with the tenant. `config` is the configuration in force as JSON text, and
    `recipe` the recipe that resolved it; a row of an earlier build may have neither.
    """

    experiment_id: str
    name: str
    spec: str
    phase: Phase
    status: Status
    head_offset: int
    next_version: int
    epoch: int
    created_at: datetime
    config: str | None = None
    recipe: int | None = None

    def log_context(self) -> dict[str, Any]:
        """Fields for a log line; nothing the caller declared."""
        return {"experiment": self.name, "offset": self.head_offset}


class NewEvent(msgspec.Struct, frozen=True, gc=False):
    """An event to be appended to the log.

    `event_key` is unique within its kind: the decision's id for a decision and for its reward. A reward
    takes arm, domain and policy version from its decision. `has_new_key` and `has_new_request` say that
    the id was just generated, so that the log need not be searched for it.
    """

    experiment_id: str
    kind: EventKind
    event_key: str
    payload: bytes = b""
    context: bytes | None = None
    request_id: str | None = None
    request_hash: str | None = None
    domain: Domain | None = None
    arm: str | None = None
    reward: float | None = None
    policy_version: int | None = None
    has_new_key: bool = False
    has_new_request: bool = False


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the log; a reward that is read from the log includes its decision."""

    experiment_id: str
    offset: int
    kind: EventKind
    event_key: str
    payload: bytes
    context: bytes | None
    request_id: str | None
    request_hash: str | None
    domain: Domain | None
    arm: str | None
    reward: float | None
    policy_version: int | None
    created_at: datetime
    decision: "StoredEvent | None" = None


class RewardRange(NamedTuple):
    """What the rewards 0 and 1 mean in the unit that a history's outcomes have."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """A difference of 1 between rewards in the unit of the outcomes."""
        return self.high - self.low

    def in_unit(self, reward: float) -> float:
        """A reward between 0 and 1 in the unit of the outcomes."""
        return self.low + reward * self.width


UNIT = RewardRange(0.0, 1.0)  # of rewards without a declared range


class Appended(NamedTuple):
    """The stored event of an append; `created` is false if the log already held it."""

    event: StoredEvent
    created: bool

    @property
    def status(self) -> str:
        """As callers see it."""
        return "created" if self.created else "already_recorded"


def phase_event(
    experiment_id: str, best_reward: float = 1.0, actor: "Actor | None" = None
) -> NewEvent:
    """The event that changes an experiment's phase to continued; appending it twice changes nothing.

    The regret of later target rewards is relative to `best_reward`.
    """
    known = {} if actor is None else actor.known()
    payload = {"phase": Phase.CONTINUED.value, "best_reward": float(best_reward), **known}
    return NewEvent(
        experiment_id,
        EventKind.PHASE,
        f"{experiment_id}:{Phase.CONTINUED}",
        payload=json.dumps(payload).encode(),
        request_hash=f"best_reward={float(best_reward)!r}",
    )


def declared_best_reward(event: StoredEvent) -> float:
    """The best reward that a phase event declares, for the regret of target rewards."""
    return float(json.loads(event.payload)["best_reward"])


def part_key(experiment_id: str, request_id: str, number: int) -> str:
    """The event key of one part of a request's contexts."""
    return f"{experiment_id}:part:{number}:{request_id}"


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot to be saved; `offset` is the last event folded into it."""

    offset: int
    encoder_version: int
    state_hash: str
    blob: bytes
    is_pinned: bool = False
    is_unfinished: bool = False  # an update or a judgement is still due
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A snapshot's metadata, without its bytes."""

    experiment_id: str
    version: int
    offset: int
    encoder_version: int
    epoch: int
    state_hash: str
    sha256: str
    size_bytes: int
    is_pinned: bool
    created_at: datetime
    note: Mapping[str, Any]

    def log_context(self) -> dict[str, Any]:
        return {"version": self.version, "offset": self.offset, "epoch": self.epoch}


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot with its bytes."""

    record: SnapshotRecord
    blob: bytes

    @property
    def is_intact(self) -> bool:
        """Whether the bytes match their stored hash."""
        return hashlib.sha256(self.blob).hexdigest() == self.record.sha256


@dataclass(frozen=True, slots=True)
class CandidateEncoder:
    """A trained encoder that is not served; `blob` is the snapshot as if it were."""

    experiment_id: str
    episode: int
    sha256: str
    size_bytes: int
    is_pinned: bool
    created_at: datetime
    verdict: Mapping[str, Any]
    blob: bytes = b""

    @property
    def is_intact(self) -> bool:
        """Whether the bytes match their stored hash."""
        return hashlib.sha256(self.blob).hexdigest() == self.sha256


@dataclass(frozen=True, slots=True)
class TransferRecord:
    """The judgement of an encoder version's transfer, from the log up to `offset`."""

    encoder_version: int
    offset: int
    created_at: datetime
    judgement: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to be the only trainer of an experiment, fenced by `epoch`."""

    experiment_id: str
    holder: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts on an experiment, as stated by the caller, and the caller's key."""

    by: str | None = None
    reason: str | None = None
    key_id: str | None = None

    def known(self) -> dict[str, str]:
        """What is known of it, as events of the log keep it."""
        every = {"by": self.by, "reason": self.reason, "key_id": self.key_id}
        return {name: text for name, text in every.items() if text is not None}

    def details(self) -> dict[str, str | None]:
        """The same with author and reason in any case, as the audit trail shows it."""
        return {"by": None, "reason": None, **self.known()}


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An administrative act on an experiment, outside its log; `name` is its full name at that time."""

    experiment_id: str
    name: str
    act: str
    actor: Actor
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LearningFailure:
    """An experiment's current learning failure, its count in a row, and the time of the next attempt.

    `pause_seconds` is the time left until then, by the database's clock.
    """

    stage: FailureStage
    reason: str
    failures: int
    since: datetime
    retry_at: datetime
    pause_seconds: float


class EvaluationStatus(StrEnum):
    """The status of an evaluation; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An offline evaluation as a job; `request` and `result` are JSON text."""

    evaluation_id: str
    experiment_id: str
    request_id: str | None
    request: str
    status: EvaluationStatus
    done: int
    total: int
    created_at: datetime
    ended_at: datetime | None
    problem: str | None
    result: str | None

    def log_context(self) -> dict[str, Any]:
        return {"evaluation_id": self.evaluation_id, "status": self.status.value}
