"""Cumulative target regret from the log."""

import pytest

from service.records import EventKind, StoredEvent, phase_event
from service.reporting.transfer_history import MAX_POINTS, target_regret
from tests.unit.learning.test_folding import event


def opened(best: float) -> StoredEvent:
    return event(1, EventKind.PHASE, payload=phase_event("e", best).payload)


def test_there_is_none_while_the_target_is_closed():
    assert target_regret([], []) == {
        "rewards": 0,
        "best_reward": None,
        "cumulative": 0.0,
        "curve": [],
    }


def test_it_adds_up_against_the_declared_best():
    found = target_regret([opened(0.9)], [0.9, 0.4, 0.0])
    assert (found["rewards"], found["best_reward"]) == (3, 0.9)
    assert found["cumulative"] == pytest.approx(1.4)
    assert found["curve"] == [[1, 0.0], [2, pytest.approx(0.5)], [3, pytest.approx(1.4)]]


@pytest.mark.parametrize("count", [0, 1, MAX_POINTS, MAX_POINTS + 1, 1234])
def test_the_curve_is_bounded_and_ends_at_the_total(count: int):
    found = target_regret([opened(1.0)], [0.0] * count)
    assert len(found["curve"]) <= MAX_POINTS + 1
    if count:
        assert found["curve"][-1] == [count, float(count)]
