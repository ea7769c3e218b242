"""An evaluation's cost grows with the rounds and its memory does not.

`python -m benchmarks.evaluation_speed` measures the seconds; tests assert ratios alone.
"""

import tracemalloc

import pytest

from benchmarks.evaluation_speed import cost


def peak(count: int) -> int:
    tracemalloc.start()
    try:
        cost(count)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log():
    cost(5_000)  # what is imported and cached once
    assert peak(160_000) < 1.2 * peak(40_000)


@pytest.mark.slow
def test_cost_is_linear_in_the_rounds():
    cost(50_000)
    short = min(cost(200_000)[0] for _ in range(3))
    long = min(cost(800_000)[0] for _ in range(3))
    assert long < 4 * 1.3 * short


def test_the_evaluation_that_is_measured_is_right():
    assert cost(60_000)[1] == pytest.approx(0.3 + 0.04 * 9, abs=0.03)
