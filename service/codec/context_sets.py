"""Unlabeled target contexts as events of the log, and back.

Contexts are written in parts of bounded size; one more event then completes the set. So a set counts
as a whole or not at all, and parts written before an interruption need not be written again.
"""

import hashlib
import math
from dataclasses import dataclass

import msgspec

from model import Domain, Floats
from service.codec.decisions import stored_contexts
from service.experiment_spec import ExperimentSpec
from service.records import CONTEXT_TYPE, EventKind, NewEvent, StoredEvent, part_key

PART_BYTES = 1 << 16
_OFFSET_BITS = 40


class StoredSet(msgspec.Struct, frozen=True):
    """The payload of a context event: `parts` is 0 in parts, and their number in the completion."""

    request_id: str
    rows: int
    parts: int = 0


_decode = msgspec.json.Decoder(StoredSet).decode


def reference(offset: int, row: int) -> int:
    """A context's reference: its event's offset and its row there; a decision has row 0."""
    return row << _OFFSET_BITS | offset


def place(name: int) -> tuple[int, int]:
    """Offset and row of a reference."""
    return name & (1 << _OFFSET_BITS) - 1, name >> _OFFSET_BITS


def rows_a_part(spec: ExperimentSpec) -> int:
    """The number of contexts in each part except the last."""
    return max(1, PART_BYTES // (math.prod(spec.context_shape) * CONTEXT_TYPE.itemsize))


@dataclass(frozen=True, slots=True)
class ContextSet:
    """Makes the events of one set of contexts."""

    experiment_id: str
    request_id: str

    def key(self) -> str:
        """The key of the event that completes the set."""
        return f"{self.experiment_id}:done:{self.request_id}"

    def part(self, number: int, rows: int, content: bytes) -> NewEvent:
        key = part_key(self.experiment_id, self.request_id, number)
        digest = hashlib.sha256(content).hexdigest()
        return self._event(key, StoredSet(self.request_id, rows), digest, content)

    def completion(self, rows: int, parts: int, digest: str) -> NewEvent:
        """The event that completes the set; `digest` covers the bytes of all parts."""
        return self._event(self.key(), StoredSet(self.request_id, rows, parts), digest, None)

    def _event(self, key: str, payload: StoredSet, digest: str, content: bytes | None) -> NewEvent:
        return NewEvent(
            self.experiment_id,
            EventKind.CONTEXTS,
            key,
            payload=msgspec.json.encode(payload),
            context=content,
            request_hash=digest,
            domain=Domain.TARGET,
        )


def stored_set(event: StoredEvent) -> StoredSet:
    """The payload of a context event."""
    return _decode(event.payload)


def completed(event: StoredEvent) -> StoredSet | None:
    """The set that an event completes; None if it completes none."""
    if event.kind is not EventKind.CONTEXTS:
        return None
    payload = stored_set(event)
    return payload if payload.parts else None


def part_contexts(event: StoredEvent, spec: ExperimentSpec) -> Floats:
    """The contexts of a part, (n, *shape)."""
    if event.context is None:
        raise ValueError("the part was read without its contexts")
    return stored_contexts(event.context, spec.context_shape)
