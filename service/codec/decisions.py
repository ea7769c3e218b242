"""Decisions as events of the log, and back.

The payload is JSON: the eligible arms in their order with their probability, mean and bonus. The
context is float32, little-endian, row-major: one context, or one for each eligible arm in that
order.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec import Struct

from model import UNKNOWN_PROPENSITY, Domain, Floats, Selection, entropy
from service.experiment_spec import ExperimentSpec
from service.records import CONTEXT_TYPE, EventKind, NewEvent, StoredEvent


class DecisionPayload(Struct, frozen=True, gc=False, omit_defaults=True):
    """Probability, mean and bonus of every eligible arm, in the order of `arms`.

    Without `probabilities` it is unknown how the arm was chosen, as in imported history. A round
    that was played elsewhere has its time and the id of its row.
    """

    arms: tuple[str, ...]
    probabilities: tuple[float, ...]
    mean: tuple[float, ...]
    bonus: tuple[float, ...]
    encoder_version: int
    time: str | None = None
    row_id: str | None = None

    def probability(self, arm: str) -> float | None:
        """The probability with which an arm was to be chosen; None if it is unknown."""
        return self.probabilities[self.arms.index(arm)] if self.probabilities else None


class _Probabilities(msgspec.Struct, frozen=True, gc=False):
    """The part of a payload that folding needs: most of its cost is in the other numbers."""

    arms: tuple[str, ...]
    probabilities: tuple[float, ...]


_decode = msgspec.json.Decoder(DecisionPayload).decode
_decode_probabilities = msgspec.json.Decoder(_Probabilities).decode


class Side(Struct, frozen=True, gc=False):
    """One domain's part of a round; `content` is its context, or one for each arm, as the log keeps it."""

    domain: Domain
    arms: tuple[str, ...]
    content: bytes


class DecisionOrigin(Struct, frozen=True, gc=False):
    """Who asked: all decisions of a request share it. `is_new` if the request's id was made here."""

    experiment_id: str
    request_id: str
    request_hash: str
    policy_version: int
    is_new: bool = False


class Chosen(Struct, frozen=True, gc=False):
    """The chosen arm, the payload of the decision, and the entropy of the choice."""

    arm: str
    payload: DecisionPayload
    entropy: float


def chosen_arms(
    selection: Selection,
    sides: Sequence[Side],
    columns: Sequence[list[int] | None],
    encoder_version: int,
) -> list[Chosen]:
    """What was chosen for each row; `columns` are those of its side's arms, none for all in order."""
    rows = zip(
        sides,
        columns,
        selection.arms.tolist(),
        selection.probabilities.tolist(),
        selection.scores.mean.tolist(),
        selection.scores.bonus.tolist(),
        entropy(selection.probabilities).tolist(),
        strict=True,
    )
    found: list[Chosen] = []
    for side, some, index, probabilities, mean, bonus, nats in rows:
        payload = DecisionPayload(
            side.arms,
            _of_columns(probabilities, some),
            _of_columns(mean, some),
            _of_columns(bonus, some),
            encoder_version,
        )
        arm = side.arms[index if some is None else some.index(index)]
        found.append(Chosen(arm, payload, nats))
    return found


def _of_columns(values: list[float], columns: list[int] | None) -> tuple[float, ...]:
    return tuple(values if columns is None else [values[column] for column in columns])


def decision_event(
    origin: DecisionOrigin, side: Side, decision_id: str, chosen: Chosen
) -> NewEvent:
    """The event of a decision whose id was made for it."""
    return NewEvent(
        origin.experiment_id,
        EventKind.DECISION,
        decision_id,
        payload=msgspec.json.encode(chosen.payload),
        context=side.content,
        request_id=origin.request_id,
        request_hash=origin.request_hash,
        domain=side.domain,
        arm=chosen.arm,
        policy_version=origin.policy_version,
        has_new_key=True,
        has_new_request=origin.is_new,
    )


def is_same(event: StoredEvent, chosen: Chosen) -> bool:
    """Whether the log holds exactly this, byte for byte."""
    return event.arm == chosen.arm and event.payload == msgspec.json.encode(chosen.payload)


def payload_of(event: StoredEvent | NewEvent) -> DecisionPayload:
    """The payload of a decision."""
    return _decode(event.payload)


def propensity(event: StoredEvent) -> float:
    """The probability with which the decision's arm was chosen, if it is known."""
    payload = _decode_probabilities(event.payload)
    if not payload.probabilities:
        return UNKNOWN_PROPENSITY
    return payload.probabilities[payload.arms.index(_arm(event))]


def context_bytes(contexts: Floats) -> bytes:
    """The contexts as the log keeps them."""
    return contexts.astype(CONTEXT_TYPE, copy=False).tobytes()


def contexts_of(sides: Sequence[Side], spec: ExperimentSpec) -> Floats:
    """The contexts of sides of one arm count: (n, *shape), or (n, arms, *shape) where arms have their own."""
    joined = b"".join([side.content for side in sides])
    own = (len(sides[0].arms),) if spec.is_per_arm else ()
    numbers = np.frombuffer(joined, dtype=CONTEXT_TYPE).astype(np.float32)
    return numbers.reshape(len(sides), *own, *spec.context_shape)


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
    row = _decode_probabilities(event.payload).arms.index(_arm(event)) if spec.is_per_arm else 0
    content = event.context[row * size : (row + 1) * size]
    if len(content) != size:
        raise ValueError(f"the decision at offset {event.offset} has no whole context")
    return content


class ArmScores(Struct, frozen=True, gc=False):
    """An arm's estimated reward, bonus and their sum."""

    mean: float
    bonus: float
    ucb: float


class DecisionAnswer(Struct, frozen=True, gc=False):
    """A decision as callers see it."""

    decision_id: str
    arm: str
    probabilities: dict[str, float]
    scores: dict[str, ArmScores]


def decision_answer(decision_id: str, arm: str, payload: DecisionPayload) -> DecisionAnswer:
    """A decision as its caller sees it."""
    scores = {
        name: ArmScores(mean, bonus, mean + bonus)
        for name, mean, bonus in zip(payload.arms, payload.mean, payload.bonus, strict=True)
    }
    known = payload.arms if payload.probabilities else ()
    probabilities = dict(zip(known, payload.probabilities, strict=True))
    return DecisionAnswer(decision_id, arm, probabilities, scores)


def stored_answer(event: StoredEvent) -> DecisionAnswer:
    """The same of a decision that the log holds."""
    return decision_answer(event.event_key, _arm(event), payload_of(event))


def _arm(event: StoredEvent) -> str:
    if event.arm is None:
        raise ValueError("the event is no decision")
    return event.arm
