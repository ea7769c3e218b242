"""Decisions as events of the log, and back.

The payload is JSON: the eligible arms in their order with what the policy said of each. The
context is float32, little-endian, row-major: one context, or one for each eligible arm in that
order.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from operator import add

import msgspec
import numpy as np
from msgspec import Raw, Struct

from model import Domain, Floats, Selection, entropy
from service.experiment_spec import ExperimentSpec
from service.records import EventKind, NewEvent, StoredEvent

CONTEXT_TYPE = np.dtype("<f4")
# Of a type that has an experiment's arms as fields; what is said of more takes much memory to remember.
MAX_FIELDS = 64


class DecisionPayload(Struct, frozen=True, gc=False):
    """What the policy said of every eligible arm, in the order of `arms`."""

    arms: tuple[str, ...]
    probabilities: tuple[float, ...]
    mean: tuple[float, ...]
    bonus: tuple[float, ...]
    encoder_version: int

    def probability(self, arm: str) -> float:
        """The probability with which an arm was to be chosen."""
        return self.probabilities[self.arms.index(arm)]


class _Written(Struct, frozen=True, gc=False):
    """A `DecisionPayload` as it is written: what many decisions have in common is text already."""

    arms: Raw
    probabilities: Raw
    mean: list[float]
    bonus: list[float]
    encoder_version: int


class _Shares(msgspec.Struct, frozen=True, gc=False):
    """The part of a payload that folding needs: most of its cost is in the other numbers."""

    arms: tuple[str, ...]
    probabilities: tuple[float, ...]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(DecisionPayload).decode
_decode_shares = msgspec.json.Decoder(_Shares).decode


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


class Odds(Struct, frozen=True, gc=False):
    """Probabilities of arms: their entropy, and both as the log (`arms`, `listed`) and callers (`named`) read them."""

    entropy: float
    arms: Raw
    listed: Raw
    named: Raw


def odds(arms: tuple[str, ...], probabilities: tuple[float, ...]) -> Odds:
    """Without ties there is one set of probabilities for each arm that can be the best: they are remembered."""
    return (_remembered_odds if len(arms) <= MAX_FIELDS else _new_odds)(arms, probabilities)


def _new_odds(arms: tuple[str, ...], probabilities: tuple[float, ...]) -> Odds:
    named = dict(zip(arms, probabilities, strict=True))
    texts = (Raw(_encode(each)) for each in (arms, probabilities, named))
    return Odds(entropy(np.array(probabilities)), *texts)


_remembered_odds = lru_cache(maxsize=1024)(_new_odds)


class Chosen(Struct, frozen=True, gc=False):
    """The arm, and what the policy said of each that was eligible, in the order of `arms`."""

    arm: str
    arms: tuple[str, ...]
    odds: Odds
    mean: list[float]
    bonus: list[float]
    encoder_version: int


def chosen_arms(
    selection: Selection,
    sides: Sequence[Side],
    columns: Sequence[list[int] | None],
    encoder_version: int,
) -> list[Chosen]:
    """What was chosen for each row; `columns` are those of its side's arms, none for all in order."""
    rows = zip(
        selection.probabilities.tolist(),
        selection.scores.mean.tolist(),
        selection.scores.bonus.tolist(),
        strict=True,
    )
    return [
        _chosen(side, some, index, numbers, encoder_version)
        for side, some, index, numbers in zip(
            sides, columns, selection.arms.tolist(), rows, strict=True
        )
    ]


def _chosen(
    side: Side,
    columns: list[int] | None,
    index: int,
    numbers: tuple[list[float], list[float], list[float]],
    encoder_version: int,
) -> Chosen:
    probabilities, mean, bonus = numbers
    if columns is not None:
        index = columns.index(index)
        probabilities, mean, bonus = ([values[column] for column in columns] for values in numbers)
    arms = side.arms
    said = odds(arms, tuple(probabilities))
    return Chosen(arms[index], arms, said, mean, bonus, encoder_version)


def decision_event(
    origin: DecisionOrigin, side: Side, decision_id: str, chosen: Chosen
) -> NewEvent:
    """The event of a decision whose id was made for it."""
    return NewEvent(
        origin.experiment_id,
        EventKind.DECISION,
        decision_id,
        payload=_encode(
            _Written(
                chosen.odds.arms,
                chosen.odds.listed,
                chosen.mean,
                chosen.bonus,
                chosen.encoder_version,
            )
        ),
        context=side.content,
        request_id=origin.request_id,
        request_hash=origin.request_hash,
        domain=side.domain,
        arm=chosen.arm,
        policy_version=origin.policy_version,
        has_new_key=True,
        has_new_request=origin.is_new,
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
    if contexts.dtype is not CONTEXT_TYPE:
        contexts = contexts.astype(CONTEXT_TYPE, copy=False)
    return contexts.tobytes()


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
    row = _decode_shares(event.payload).arms.index(_arm(event)) if spec.is_per_arm else 0
    content = event.context[row * size : (row + 1) * size]
    if len(content) != size:
        raise ValueError(f"the decision at offset {event.offset} has no whole context")
    return content


class ArmScores(Struct, frozen=True, gc=False):
    """What the policy said of an arm."""

    mean: float
    bonus: float
    ucb: float


class DecisionAnswer(Struct, frozen=True, gc=False):
    """A decision as callers see it; what is said of each arm is an object with the arms' names."""

    decision_id: str
    arm: str
    probabilities: dict[str, float] | Raw
    scores: dict[str, ArmScores] | Struct


@lru_cache(maxsize=256)
def by_arm(arms: tuple[str, ...]) -> Callable[..., Struct] | None:
    """A type that has these arms as fields: filled in a third of the time of a dictionary, written the same.

    None where there are too many, or where JSON has to write a name otherwise.
    """
    if len(arms) > MAX_FIELDS:
        return None
    names = {f"arm_{number}": arm for number, arm in enumerate(arms)}
    try:
        return msgspec.defstruct("ByArm", list(names), rename=names, frozen=True, gc=False)
    except ValueError:
        return None


def new_answer(
    decision_id: str, chosen: Chosen, of_arms: Callable[..., Struct] | None = None
) -> DecisionAnswer:
    """A decision as its caller sees it; `of_arms` is `by_arm` of its arms where they will be asked for again."""
    scores = _scores(chosen.mean, chosen.bonus)
    named = dict(zip(chosen.arms, scores, strict=True)) if of_arms is None else of_arms(*scores)
    return DecisionAnswer(decision_id, chosen.arm, chosen.odds.named, named)


def stored_answer(event: StoredEvent) -> DecisionAnswer:
    """The same of a decision that the log holds."""
    said = payload_of(event)
    probabilities = dict(zip(said.arms, said.probabilities, strict=True))
    scores = dict(zip(said.arms, _scores(said.mean, said.bonus), strict=True))
    return DecisionAnswer(event.event_key, _arm(event), probabilities, scores)


def _scores(mean: Sequence[float], bonus: Sequence[float]) -> Iterator[ArmScores]:
    return map(ArmScores, mean, bonus, map(add, mean, bonus))


def _arm(event: StoredEvent) -> str:
    if event.arm is None:
        raise ValueError("the event is no decision")
    return event.arm
