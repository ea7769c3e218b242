"""Confidence and verdict on simulated worlds: a quick look here, all 40 runs marked slow."""

import numpy as np
import pytest

from benchmarks.transfer_verdicts import area, judged_runs
from model.transfer.verdict import Word

ROUNDS = 1024
UNALIGNABLE = ("labels permuted, disjoint supports", "labels permuted, strong shift")


@pytest.mark.slow
def test_confidence_tells_right_from_wrong_under_moderate_shift():
    runs = judged_runs("moderate shift", 2, ROUNDS)
    assert np.mean([run.auc for run in runs]) >= 0.75
    assert all(run.kept_accuracy > run.accuracy for run in runs)


@pytest.mark.parametrize("world", UNALIGNABLE)
@pytest.mark.slow
def test_an_unalignable_target_is_not_called_aligned(world):
    runs = judged_runs(world, 1, ROUNDS)
    assert all(run.word is not Word.ALIGNED for run in runs)


@pytest.mark.slow
def test_without_shift_it_is_called_aligned():
    runs = judged_runs("no shift", 1, ROUNDS)
    assert all(run.word is Word.ALIGNED for run in runs)
    assert all(abs(run.mean_confidence - run.accuracy) < 0.15 for run in runs)


def test_area_is_the_chance_to_order_a_pair():
    is_right = np.array([True, True, False])
    assert area(np.array([0.9, 0.5, 0.1]), is_right) == 1.0
    assert area(np.array([0.9, 0.1, 0.5]), is_right) == 0.5
    assert area(np.array([0.5, 0.5, 0.5]), is_right) == 0.5
    assert np.isnan(area(np.array([1.0]), np.array([True])))


@pytest.mark.study
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("world", UNALIGNABLE)
def test_40_unalignable_targets_are_not_called_aligned(world):
    runs = judged_runs(world, 40, ROUNDS)
    assert sum(run.word is not Word.ALIGNED for run in runs) >= 38


@pytest.mark.study
@pytest.mark.timeout(7200)
def test_40_targets_without_shift_are_called_aligned():
    runs = judged_runs("no shift", 40, ROUNDS)
    assert sum(run.word is Word.ALIGNED for run in runs) >= 38


@pytest.mark.study
@pytest.mark.timeout(7200)
def test_confidence_holds_over_40_moderately_shifted_targets():
    runs = judged_runs("moderate shift", 40, ROUNDS)
    assert np.mean([run.auc for run in runs]) >= 0.75
    assert all(run.kept_accuracy > run.accuracy for run in runs)
