import numpy as np
import pytest

from model.transfer.abstention import FLOORS, abstentions


def test_a_higher_floor_decides_less_and_expects_more():
    confidence = np.array([0.45, 0.55, 0.65, 0.85, 0.85])
    found = {each.confidence_floor: each for each in abstentions(confidence)}
    assert tuple(found) == FLOORS
    assert found[0.5].decided_share == pytest.approx(0.8)
    assert found[0.5].expected_reward == pytest.approx(0.725)
    assert found[0.8].decided_share == pytest.approx(0.4)
    assert found[0.8].expected_reward == pytest.approx(0.85)


def test_a_floor_counts_as_reached_as_in_a_request():
    assert abstentions(np.array([0.5]))[0].decided_share == 1.0


def test_nothing_decided_expects_nothing():
    last = abstentions(np.array([0.2, 0.3]))[-1]
    assert (last.decided_share, last.expected_reward) == (0.0, None)
