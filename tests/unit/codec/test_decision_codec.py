"""Decisions become events and come back."""

import math

import msgspec
import numpy as np
import pytest

from model.config import ContextKind
from model.rounds import Domain, Scores, Selection
from service.codec.decisions import (
    DecisionOrigin,
    DecisionPayload,
    Side,
    chosen_arms,
    chosen_context,
    decision_answer,
    decision_event,
    payload_of,
    propensity,
    stored_answer,
)
from service.experiment_spec import ExperimentSpec
from service.records import NewEvent, StoredEvent, utc_now

ORIGIN = DecisionOrigin("e-1", "r-1", "hash", policy_version=12)
ENCODER = 3
MEAN = np.array([[0.25, 0.5, 0.125]], dtype=np.float32)
BONUS = np.array([[0.5, 0.25, 0.125]], dtype=np.float32)
SELECTION = Selection(
    np.array([1]), np.array([[0.25, 0.5, 0.25]]), Scores(MEAN, BONUS, MEAN + BONUS)
)
ARMS = ("low", "mid", "high")
SHARED = np.array([1.0, 2.0], dtype=np.float32)
OWN = np.arange(6, dtype=np.float32).reshape(3, 2)


def stored(event: NewEvent) -> StoredEvent:
    kept = StoredEvent.__struct_fields__
    values = {name: value for name, value in msgspec.structs.asdict(event).items() if name in kept}
    return StoredEvent(**values, offset=1, created_at=utc_now())


def made(domain: Domain, contexts: np.ndarray, decision_id: str = "d-1") -> NewEvent:
    side = Side(domain, ARMS, contexts.tobytes())
    (chosen,) = chosen_arms(SELECTION, [side], [None], ENCODER)
    return decision_event(ORIGIN, side, decision_id, chosen)


def spec(kind: ContextKind) -> ExperimentSpec:
    return ExperimentSpec("doses", ARMS, kind, (2,))


def test_an_event_holds_all_that_the_policy_said():
    event = made(Domain.SOURCE, SHARED)
    assert (event.event_key, event.arm, event.domain) == ("d-1", "mid", Domain.SOURCE)
    assert (event.policy_version, event.request_id, event.request_hash) == (12, "r-1", "hash")
    assert event.context == SHARED.tobytes()
    assert b'"encoder_version":3' in event.payload
    assert propensity(stored(event)) == 0.5


def test_the_answer_is_that_of_the_design():
    event = made(Domain.SOURCE, SHARED)
    assert msgspec.to_builtins(stored_answer(stored(event))) == {
        "decision_id": "d-1",
        "arm": "mid",
        "probabilities": {"low": 0.25, "mid": 0.5, "high": 0.25},
        "scores": {
            "low": {"mean": 0.25, "bonus": 0.5, "ucb": 0.75},
            "mid": {"mean": 0.5, "bonus": 0.25, "ucb": 0.75},
            "high": {"mean": 0.125, "bonus": 0.125, "ucb": 0.25},
        },
    }


MANY_ARMS = tuple(f"arm {number}" for number in range(65))


def selection_of(count: int) -> Selection:
    numbers = np.random.default_rng(count).random((3, 1, count))
    scores = Scores(numbers[1], numbers[2], numbers[1] + numbers[2])
    return Selection(np.array([0]), numbers[0] / numbers[0].sum(), scores)


@pytest.mark.parametrize("arms", [ARMS, ('"', "é\u2028"), MANY_ARMS])
def test_a_new_decision_is_written_and_answered_as_the_stored_one_will_be(arms: tuple[str, ...]):
    side, selection = Side(Domain.SOURCE, arms, SHARED.tobytes()), selection_of(len(arms))
    (chosen,) = chosen_arms(selection, [side], [None], ENCODER)
    event = decision_event(ORIGIN, side, "d-1", chosen)
    probabilities, mean, bonus = (
        tuple(each[0].tolist())
        for each in (selection.probabilities, selection.scores.mean, selection.scores.bonus)
    )
    content = DecisionPayload(arms, probabilities, mean, bonus, ENCODER)
    assert payload_of(event) == content
    assert event.payload == msgspec.json.encode(content)
    answer = msgspec.json.encode(decision_answer("d-1", chosen.arm, chosen.payload))
    assert answer == msgspec.json.encode(stored_answer(stored(event)))
    assert chosen.entropy == pytest.approx(-sum(p * math.log(p) for p in probabilities))


def test_a_narrowed_selection_keeps_the_chosen_arm():
    side = Side(Domain.SOURCE, ("mid", "high"), SHARED.tobytes())
    (chosen,) = chosen_arms(SELECTION, [side], [[1, 2]], 3)
    assert chosen.arm == "mid"
    assert chosen.payload == DecisionPayload(
        ("mid", "high"), (0.5, 0.25), (0.5, 0.125), (0.25, 0.125), 3
    )


def test_the_context_that_the_model_learns_from_comes_back():
    shared = made(Domain.SOURCE, SHARED)
    own = made(Domain.TARGET, OWN, "d-2")
    seen = chosen_context(stored(shared), spec(ContextKind.SHARED))
    np.testing.assert_array_equal(seen, SHARED)
    seen = chosen_context(stored(own), spec(ContextKind.PER_ARM))
    np.testing.assert_array_equal(seen, OWN[1])
    assert seen.flags.writeable
    assert seen.dtype == np.float32


def test_a_decision_read_without_its_context_has_none_to_give():
    event = made(Domain.SOURCE, SHARED)
    without = msgspec.structs.replace(stored(event), context=None)
    with pytest.raises(ValueError, match="without its context"):
        chosen_context(without, spec(ContextKind.SHARED))
