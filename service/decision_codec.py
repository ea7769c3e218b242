"""Decisions as events of the log, and back.

The payload is JSON: the eligible arms in their order with what the policy said of each. The
context is float32, little-endian, row-major: one context, or one for each eligible arm in that
order.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from model.rounds import Domain, Floats, Selection
from service.experiment_spec import ExperimentSpec
from service.records import EventKind, NewEvent, StoredEvent

CONTEXT_TYPE = np.dtype("<f4")


class DecisionPayload(msgspec.Struct, frozen=True):
    """What the policy said of every eligible arm, in the order of `arms`."""

    arms: tuple[str, ...]
    probabilities: tuple[float, ...]
    mean: tuple[float, ...]
    bonus: tuple[float, ...]
    encoder_version: int

    def probability(self, arm: str) -> float:
        """The probability with which an arm was to be chosen."""
        return self.probabilities[self.arms.index(arm)]


class _Shares(msgspec.Struct, frozen=True):
    """The part of a payload that folding needs: most of its cost is in the other numbers."""

    arms: tuple[str, ...]
    probabilities: tuple[float, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(DecisionPayload).decode
_decode_shares = msgspec.json.Decoder(_Shares).decode


@dataclass(frozen=True, slots=True)
class Side:
    """One domain's part of a round: `contexts` is (*shape), or (arms, *shape) where arms have their own."""

    domain: Domain
    arms: tuple[str, ...]
    contexts: Floats


@dataclass(frozen=True, slots=True)
class DecisionOrigin:
    """Who asked: all decisions of a request share it."""

    experiment_id: str
    request_id: str
    request_hash: str
    policy_version: int
    encoder_version: int


def narrowed(selection: Selection, row: int, columns: list[int]) -> Selection:
    """One row of a selection and only these columns of it; the chosen arm is among them."""
    arms, probabilities, scores = selection
    kept = type(scores)(*(each[row : row + 1, columns] for each in scores))
    position = columns.index(int(arms[row]))
    return Selection(np.array([position]), probabilities[row : row + 1, columns], kept)


def decision_event(
    origin: DecisionOrigin, side: Side, decision_id: str, selection: Selection
) -> NewEvent:
    """The event of a selection of one row, whose columns are the side's arms."""
    payload = DecisionPayload(
        side.arms,
        tuple(selection.probabilities[0].tolist()),
        tuple(selection.scores.mean[0].tolist()),
        tuple(selection.scores.bonus[0].tolist()),
        origin.encoder_version,
    )
    return NewEvent(
        origin.experiment_id,
        EventKind.DECISION,
        decision_id,
        payload=_encode(payload),
        context=context_bytes(side.contexts),
        request_id=origin.request_id,
        request_hash=origin.request_hash,
        domain=side.domain,
        arm=side.arms[int(selection.arms[0])],
        policy_version=origin.policy_version,
    )


def payload_of(event: StoredEvent | NewEvent) -> DecisionPayload:
    """What the policy said when it made this decision."""
    return _decode(event.payload)


def propensity(event: StoredEvent) -> float:
    """The probability with which the decision's arm was chosen."""
    said = _decode_shares(event.payload)
    return said.probabilities[said.arms.index(_arm(event))]


def context_bytes(contexts: Floats) -> bytes:
    """The contexts as the log keeps them."""
    return contexts.astype(CONTEXT_TYPE, copy=False).tobytes()


def stored_contexts(context: bytes, shape: tuple[int, ...]) -> Floats:
    """All contexts of a decision, (arms, *shape); a shared one is (1, *shape)."""
    flat = np.frombuffer(context, dtype=CONTEXT_TYPE).astype(np.float32)
    return flat.reshape(-1, *shape)


def chosen_context(event: StoredEvent, spec: ExperimentSpec) -> Floats:
    """What φ sees of a stored decision: the shared context, or that of the chosen arm."""
    return np.asarray(chosen_contexts([event], spec)[0])


def chosen_contexts(events: Sequence[StoredEvent], spec: ExperimentSpec) -> Floats:
    """`chosen_context` of each decision, (n, *shape)."""
    size = math.prod(spec.context_shape) * CONTEXT_TYPE.itemsize
    joined = b"".join(_chosen_bytes(event, spec, size) for event in events)
    return stored_contexts(joined, spec.context_shape)


def _chosen_bytes(event: StoredEvent, spec: ExperimentSpec, size: int) -> bytes:
    if event.context is None:
        raise ValueError("the decision was read without its context")
    row = _decode_shares(event.payload).arms.index(_arm(event)) if spec.is_per_arm else 0
    content = event.context[row * size : (row + 1) * size]
    if len(content) != size:
        raise ValueError(f"the decision at offset {event.offset} has no whole context")
    return content


def decision_answer(event: StoredEvent) -> dict[str, Any]:
    """The decision as callers see it, the same for a new and for a stored one."""
    said = payload_of(event)
    rows = zip(said.arms, said.mean, said.bonus, strict=True)
    return {
        "decision_id": event.event_key,
        "arm": event.arm,
        "probabilities": dict(zip(said.arms, said.probabilities, strict=True)),
        "scores": {
            arm: {"mean": mean, "bonus": bonus, "ucb": mean + bonus} for arm, mean, bonus in rows
        },
    }


def _arm(event: StoredEvent) -> str:
    if event.arm is None:
        raise ValueError("the event is no decision")
    return event.arm
