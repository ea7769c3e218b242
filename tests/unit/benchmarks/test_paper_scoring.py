"""What a choice of arms is worth."""

import numpy as np

from benchmarks.paper.scoring import (
    agreement,
    by_best_arm,
    by_learner,
    normalised_reward,
    packed_arms,
)
from model.learner import Learner
from model.rounds import Domain
from tests.support.builders import small_config

GRADED = np.array([[0.5, 1.0, 0.0], [0.25, 0.5, 0.0], [0.8, 0.2, 0.4]], np.float32)
EXCLUSIVE = np.eye(3, dtype=np.float32)[[0, 0, 1, 2]]


def test_with_exclusive_rewards_it_is_the_accuracy():
    assert normalised_reward(np.array([0, 1, 1, 0]), EXCLUSIVE) == 0.5


def test_with_graded_rewards_it_is_the_share_of_the_best_reward():
    found = normalised_reward(np.array([0, 0, 0]), GRADED)
    np.testing.assert_allclose(found, (0.5 + 0.25 + 0.8) / (1.0 + 0.5 + 0.8))


def test_by_best_arm_it_is_the_same_for_each_class():
    assert by_best_arm(np.array([0, 1, 1, 0]), EXCLUSIVE) == [0.5, 1.0, 0.0]
    found = by_best_arm(np.array([0, 0, 2]), GRADED)
    np.testing.assert_allclose(found[:2], [0.5, 0.5])  # type: ignore[arg-type]
    assert found[2] is None


def test_the_target_is_judged_by_the_theta_that_decides_on_it():
    learner = Learner(small_config(encoder="identity", context_shape=(3,)), seed=0)
    ones = np.ones((1, 3), dtype=np.float32)
    learner.statistics.fold(ones, np.array([2]), np.ones(1))
    learner.statistics.target_shift = 9.0 * np.eye(3)[[1, 0, 2]]
    choose = by_learner(learner)
    contexts = np.eye(3, dtype=np.float32)
    assert choose(contexts, Domain.SOURCE).tolist() == [2, 2, 2]
    assert choose(contexts, Domain.TARGET).tolist() == [1, 0, 2]


def test_agreement_is_the_share_of_equal_arms_over_all_pairs_of_runs():
    runs = [packed_arms(np.array(arms)) for arms in ([0, 1, 2, 70_000], [0, 1, 1, 1], [0, 1, 1, 0])]
    assert agreement(runs) == (0.5 + 0.5 + 0.75) / 3
    assert agreement(runs[:1]) is None
