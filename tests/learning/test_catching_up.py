"""Imported history is learned from as well as the same rewards one by one.

The fast tests count updates (tests/unit/model/test_due_updates.py); these compare what they lead to.
"""

import pytest

from benchmarks.catching_up import PLAYED, Job, Trial, measured, train_all_due
from benchmarks.lab import use_one_thread
from model.simulate import ClusterWorld

REWARDS, UPDATES = 2400, 37
SEEDS = range(16)  # the standard error of the difference is then 0.005
MOST_LOST = 0.01


@pytest.mark.study
@pytest.mark.timeout(14_400)
@pytest.mark.parametrize("world", PLAYED)
def test_imported_rewards_lead_to_the_accuracy_of_the_same_one_by_one(world):
    means = []
    for way in ("one by one", "imported, one update for each H"):
        jobs: list[Job] = [(way, world, REWARDS, seed, "cpu") for seed in SEEDS]
        found = [measured(job) for job in jobs]
        assert {updates for _, updates in found} == {UPDATES}
        means.append(sum(accuracy for accuracy, _ in found) / len(found))
    one_by_one, imported = means
    assert imported >= one_by_one - MOST_LOST, means


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_target_contexts_that_come_last_are_learned_from():
    use_one_thread()
    trial = Trial.drawn(ClusterWorld(seed=0), REWARDS // 3, 0)
    learner = trial.learner(0)
    trial.import_into(learner, has_target=False)
    train_all_due(learner)
    before, seen = trial.target_accuracy(learner), learner.context_counts
    trial.upload_target(learner)
    assert train_all_due(learner, seen) == 1
    assert trial.target_accuracy(learner) >= before + 0.1
