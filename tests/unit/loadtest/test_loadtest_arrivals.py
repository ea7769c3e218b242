"""When requests are due."""

import numpy as np
import pytest

from loadtest.arrivals import Arrivals, Segment, Share, due_times

SEGMENTS = (Segment(40, 2), Segment(10, 3))


def test_constant_arrivals_are_evenly_spaced():
    times = due_times(SEGMENTS, Arrivals.CONSTANT, seed=1)
    assert len(times) == 110
    assert np.diff(times[:80]) == pytest.approx(1 / 40)
    assert np.diff(times[80:]) == pytest.approx(1 / 10)
    assert times[80] == 2


def test_constant_arrivals_of_several_generators_interleave_to_one_even_row():
    shares = [due_times(SEGMENTS, Arrivals.CONSTANT, 1, Share(index, 3)) for index in range(3)]
    together = np.sort(np.concatenate(shares))
    assert together == pytest.approx(due_times(SEGMENTS, Arrivals.CONSTANT, 1))


def test_counts_of_poisson_arrivals_have_a_variance_equal_to_their_mean():
    times = due_times([Segment(50, 4000)], Arrivals.POISSON, seed=3)
    counts = np.bincount(times.astype(int), minlength=4000)
    # Of 4000 counts, the mean has a standard error of 0.11 and the variance one of 1.1.
    assert counts.mean() == pytest.approx(50, abs=0.5)
    assert counts.var() == pytest.approx(50, abs=5)


def test_the_number_of_all_poisson_arrivals_varies_as_theirs_does():
    totals = [len(due_times([Segment(50, 1)], Arrivals.POISSON, seed)) for seed in range(1000)]
    assert np.mean(totals) == pytest.approx(50, abs=1)
    assert np.var(totals) == pytest.approx(50, abs=10)  # a standard error of 2.2


def test_gaps_of_poisson_arrivals_are_exponential():
    gaps = np.diff(due_times([Segment(100, 1000)], Arrivals.POISSON, seed=4))
    assert (gaps >= 0).all()
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.02)
    assert np.mean(gaps > gaps.mean()) == pytest.approx(np.exp(-1), abs=0.01)


def test_several_poisson_generators_send_the_whole_rate_and_differ():
    shares = [
        due_times([Segment(90, 1000)], Arrivals.POISSON, 5, Share(index, 3)) for index in range(3)
    ]
    assert sum(map(len, shares)) == pytest.approx(90_000, rel=0.02)
    assert not np.isin(shares[0], shares[1]).any()


def test_the_same_seed_gives_the_same_times():
    first, second = (due_times(SEGMENTS, Arrivals.POISSON, seed=6) for _ in range(2))
    assert (first == second).all()
    assert len(first[first < 2]) > len(first[first >= 2])
