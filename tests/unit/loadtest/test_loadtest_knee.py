"""Finding the knee of a service whose capacity is known."""

import pytest

from loadtest.bench import Stage
from loadtest.knee import NoKneeError, Promise, find_knee
from tests.support.loadtest import stage_of


class Service:
    """Keeps up to its capacity, then refuses; some steps are disturbed."""

    def __init__(self, capacity: float, *disturbed: int) -> None:
        self._capacity = capacity
        self._disturbed = disturbed
        self.rates: list[float] = []

    def play(self, rate: float) -> Stage:
        self.rates.append(rate)
        is_disturbed = len(self.rates) in self._disturbed
        count = round(rate)
        good = round(min(rate, self._capacity))
        return stage_of([[2.0 if is_disturbed else 0.01] * good], rate, refused=count - good)


@pytest.mark.parametrize("capacity", [70.0, 333.0, 5000.0])
def test_the_knee_is_found_to_some_percent_and_from_below(capacity: float):
    knee = find_knee(Service(capacity).play, Promise())
    assert 0.94 * capacity <= knee.rate <= 1.011 * capacity


def test_a_disturbed_step_is_tried_once_more():
    calm, disturbed = Service(400), Service(400, 3)
    assert find_knee(calm.play, Promise()).rate == find_knee(disturbed.play, Promise()).rate
    assert len(disturbed.rates) == len(calm.rates) + 1


def test_slow_answers_are_not_kept_up_with():
    with pytest.raises(NoKneeError, match="25 requests"):
        find_knee(lambda rate: stage_of([[0.2] * 25], rate), Promise(p99_seconds=0.1))
