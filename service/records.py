"""The frozen values that storage, trainer and routes hand to each other.

Events are structs, not dataclasses: they are made by the million, in a thirtieth of the time. Nothing in them
can refer back to them, so the garbage collector need not look at them; that halves the time again.
"""

import hashlib
import json
import os
import time
from collections import deque
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


class EventKind(StrEnum):
    """What a row of the event log says."""

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


class Status(StrEnum):
    """What an experiment takes: everything, rewards alone, nothing new; or it is being erased."""

    ACTIVE = "active"
    PAUSED = "paused"
    ARCHIVED = "archived"
    DELETED = "deleted"


class FailureStage(StrEnum):
    """Where learning fails: training an encoder, or folding the log, which training waits for."""

    TRAINING = "training"
    FOLDING = "folding"


def utc_now() -> datetime:
    """The wall clock, in UTC."""
    return datetime.now(UTC)


def check_identifier(value: str, pointer: str) -> str:
    """The id as it is: opaque text, compared byte for byte, that every database can hold."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        refuse("An id must be valid Unicode, without lone surrogates.", pointer)
    if not 1 <= size <= MAX_ID_BYTES:
        refuse(f"An id has 1 to {MAX_ID_BYTES} bytes.", pointer)
    if "\0" in value:
        refuse("An id must not hold the character NUL.", pointer)
    return value


def uuid7(milliseconds: int | None = None) -> str:
    """A UUIDv7 (RFC 9562): 48 bits of Unix milliseconds, version, variant and 74 random bits."""
    moment = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    return _front(moment) + _back()


def uuid7s(count: int) -> list[str]:
    """So many at once, which costs half as much."""
    front = _front(time.time_ns() // 1_000_000)
    return [front + _back() for _ in range(count)]


def _front(moment: int) -> str:
    digits = f"{moment & (1 << 48) - 1:012x}"
    return f"{digits[:8]}-{digits[8:]}-"


_POOLED_IDS = 256
_pool: deque[str] = deque()
os.register_at_fork(after_in_child=_pool.clear)  # or two processes would make the same ids


def _back() -> str:
    """All of an id after its time; the system is asked for many at once, which costs as much as one."""
    try:
        return _pool.pop()
    except IndexError:
        *others, first = _drawn()
        _pool.extend(others)
        return first  # another thread may have taken all the others


def _drawn() -> list[str]:
    drawn = np.frombuffer(bytearray(os.urandom(10 * _POOLED_IDS)), np.uint8).reshape(-1, 10)
    drawn[:, 0] = drawn[:, 0] & 0x0F | 0x70  # the version
    drawn[:, 2] = drawn[:, 2] & 0x3F | 0x80  # the variant
    digits = np.frombuffer(drawn.tobytes().hex().encode(), np.uint8).reshape(-1, 20)
    texts = np.full((_POOLED_IDS, 22), ord("-"), np.uint8)
    texts[:, :4], texts[:, 5:9], texts[:, 10:] = digits[:, :4], digits[:, 4:8], digits[:, 8:]
    joined = texts.tobytes().decode()
    made = (joined[at : at + 22] for at in range(0, len(joined), 22))
    # The smallest is taken first: ids of one millisecond rise, and an index is filled from its end.
    return sorted(made, reverse=True)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One bandit as the database knows it; `spec` is the JSON text the caller declared.

    `name` is the full one, which tells the tenant. `config` is the configuration in force as JSON text,
    and `recipe` the one that it was resolved by; a row of an earlier build may have neither.
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
    """An event on its way into the log.

    `event_key` is unique within its kind: the decision's id for a decision and for its reward.
    A reward takes arm, domain and policy version from its decision, whatever is given here.
    `has_new_key` and `has_new_request` say that an id was made for this event a moment ago: no
    log is searched for it.
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

    def log_context(self) -> dict[str, Any]:
        """Fields for a log line; never context, payload or reward."""
        return {"kind": self.kind.value, "event_key": self.event_key, "domain": self.domain}


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of the log; a reward that was read from the log brings its decision."""

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

    def log_context(self) -> dict[str, Any]:
        """Fields for a log line; never context, payload or reward."""
        return {"kind": self.kind.value, "event_key": self.event_key, "offset": self.offset}


class Appended(NamedTuple):
    """What the log holds for an appended event; not `created` when it was there before."""

    event: StoredEvent
    created: bool


def phase_event(
    experiment_id: str, phase: Phase, best_reward: float = 1.0, key_id: str | None = None
) -> NewEvent:
    """The event that moves an experiment on to `phase`; appending it twice changes nothing.

    The regret of the target rewards that follow is counted against `best_reward`.
    """
    if phase is not Phase.CONTINUED:
        raise ValueError("the phase moves one way, to continued")
    said = {"phase": phase.value, "best_reward": float(best_reward), **acted_by(key_id)}
    return NewEvent(
        experiment_id,
        EventKind.PHASE,
        f"{experiment_id}:{phase}",
        payload=json.dumps(said).encode(),
        request_hash=f"best_reward={float(best_reward)!r}",
    )


def acted_by(key_id: str | None) -> dict[str, str]:
    """What an event says of the key that asked for it."""
    return {} if key_id is None else {"key_id": key_id}


def declared_best_reward(event: StoredEvent) -> float:
    """What the regret of target rewards is counted against since this change of phase."""
    return float(json.loads(event.payload)["best_reward"])


def part_key(experiment_id: str, request_id: str, number: int) -> str:
    """The key of a part of the contexts that a request brought."""
    return f"{experiment_id}:part:{number}:{request_id}"


@dataclass(frozen=True, slots=True)
class NewSnapshot:
    """A snapshot on its way into the database; `offset` is the last event folded into it."""

    offset: int
    encoder_version: int
    state_hash: str
    blob: bytes
    is_pinned: bool = False
    is_unfinished: bool = False  # an update or a judgement is left to do
    note: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """All that is known about a snapshot, without its bytes."""

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
        """Fields for a log line."""
        return {"version": self.version, "offset": self.offset, "epoch": self.epoch}


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A snapshot with its bytes."""

    record: SnapshotRecord
    blob: bytes

    @property
    def is_intact(self) -> bool:
        """Whether the bytes are those that were saved."""
        return hashlib.sha256(self.blob).hexdigest() == self.record.sha256


@dataclass(frozen=True, slots=True)
class Candidate:
    """A trained encoder that does not serve; `blob` is a snapshot as if it did."""

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
        """Whether the bytes are those that were saved."""
        return hashlib.sha256(self.blob).hexdigest() == self.sha256


@dataclass(frozen=True, slots=True)
class TransferRecord:
    """What was said of the transfer of an encoder version, by the log up to `offset`."""

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

    def log_context(self) -> dict[str, Any]:
        """Fields for a log line."""
        return {"holder": self.holder, "epoch": self.epoch}


@dataclass(frozen=True, slots=True)
class Actor:
    """A person or system that acts on an experiment, as it says itself, and the key that it came with."""

    by: str | None = None
    reason: str | None = None
    key_id: str | None = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """What was done to an experiment beside its log; `name` is the full one it had then."""

    experiment_id: str
    name: str
    act: str
    actor: Actor
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LearningFailure:
    """How an experiment's learning fails, how often in a row, and when it is tried again.

    `pause_seconds` are left until then, by the database's clock when it was asked.
    """

    stage: FailureStage
    reason: str
    failures: int
    since: datetime
    retry_at: datetime
    pause_seconds: float


class EvaluationStatus(StrEnum):
    """Where an evaluation stands; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing will change any more."""
        return self in (self.DONE, self.FAILED, self.CANCELLED)


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
        """Fields for a log line."""
        return {"evaluation_id": self.evaluation_id, "status": self.status.value}
