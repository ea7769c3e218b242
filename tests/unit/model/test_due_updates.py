"""Updates that are due: counted while another is pending, begun later, kept in snapshots."""

import numpy as np
import pytest

from benchmarks.catching_up import train_all_due, train_larger
from model.learner import Learner
from model.rounds import Domain
from model.state.restore import restore
from model.state.snapshot import COVERED, opened, state_hash, to_bytes
from model.training.schedule import ContextCounts
from tests.support.builders import make_rounds, small_config, teach

LENGTH = small_config().episode_length


def fed(episodes: float, **changes: object) -> Learner:
    """A learner that has folded so many episodes while its first update was pending."""
    learner = Learner(small_config(rebuild_window=500, **changes), seed=2)
    learner.observe(*make_rounds(learner.config, int(episodes * LENGTH)))
    return learner


@pytest.mark.parametrize("episodes", [1, 5, 5.5])
def test_folded_at_once_rewards_lead_to_as_many_updates_as_one_by_one(episodes):
    learner = fed(episodes)
    assert learner.progress.due_updates == int(episodes) - 1
    assert train_all_due(learner) == learner.episode == learner.covered_episodes == int(episodes)
    assert learner.progress.due_updates == 0


def test_fewer_larger_updates_make_as_many_steps():
    one_each, larger = fed(6), fed(6)
    train_all_due(one_each)
    assert train_larger(larger, 3) == 3  # the first, then of 3 and 2 episodes
    assert (larger.episode, larger.progress.due_updates) == (6, 0)
    assert float(larger.moments["step"]) == float(one_each.moments["step"])


def test_only_rewards_that_are_kept_are_made_up_for():
    learner = Learner(small_config(), seed=2)  # keeps 48 rounds: 3 episodes
    learner.observe(*make_rounds(learner.config, 10 * LENGTH))
    assert train_all_due(learner) == 4  # the one that was pending, then 3
    assert learner.covered_episodes == 10


def test_slow_rewards_leave_nothing_due_and_write_no_new_field():
    learner = Learner(small_config(), seed=2)
    for round_ in make_rounds(learner.config, 3 * LENGTH):
        learner.observe(round_)
        learner.train()
        assert learner.progress.due_updates == 0
    assert COVERED not in opened(to_bytes(learner, 1))[0].counts


def test_an_update_that_is_due_while_one_is_pending_writes_no_new_field():
    """What earlier builds wrote of such a learner must come out of a replay again."""
    learner = fed(4)
    assert COVERED not in opened(to_bytes(learner, 1))[0].counts


def test_what_is_due_is_kept_in_a_snapshot():
    learner = fed(4)
    learner.train()
    learner.request_update()
    learner.request_update()
    back = restore(to_bytes(learner, 1))
    assert back.progress == learner.progress
    assert train_all_due(back) == train_all_due(learner) == 3
    assert state_hash(back) == state_hash(learner)


def test_a_request_trains_between_episodes():
    learner = fed(1.5)
    learner.train()
    learner.request_update()
    assert learner.pending is not None
    assert (learner.episode, learner.covered_episodes) == (2, 1)
    back = restore(to_bytes(learner, 1))
    assert (back.episode, back.covered_episodes, back.progress.due_updates) == (2, 1, 0)


def test_requests_during_an_update_make_one_more_due():
    learner = fed(1)
    learner.request_update()
    learner.request_update()
    assert learner.progress.due_updates == 1
    assert train_all_due(learner) == 2


def test_a_request_while_updates_are_due_adds_none():
    learner = fed(3)
    learner.request_update()
    assert train_all_due(learner) == 3


def test_a_request_counts_before_the_first_episode_is_full():
    learner = fed(0.5)
    learner.request_update()
    learner.request_update()
    back = restore(to_bytes(learner, 1))
    assert train_all_due(back) == 2
    back.observe(*make_rounds(back.config, LENGTH // 2, seed=1))
    assert back.pending is not None  # the episode is full, as ever


def test_nothing_is_trained_without_a_reward():
    learner = Learner(small_config(), seed=2)
    learner.observe_context(0, Domain.TARGET, [0.0] * 4)
    learner.request_update()
    learner.begin_update(covers=1)
    assert (learner.pending, learner.episode) == (None, 0)


def test_target_contexts_that_come_last_change_the_policy():
    learner = Learner(small_config(divergence_weight=1.0), seed=2)
    rounds = make_rounds(learner.config, LENGTH)
    learner.observe(*rounds)
    assert train_all_due(learner) == 1
    seen, before = learner.context_counts, learner.policy()
    contexts = np.stack([round_.context + 1 for round_ in rounds])
    learner.observe_contexts(range(LENGTH), Domain.TARGET, contexts)
    assert train_all_due(learner, seen) == 1
    scores = [each.score_many(contexts, Domain.TARGET).mean for each in (before, learner.policy())]
    assert (scores[0] != scores[1]).any()
    assert train_all_due(learner, learner.context_counts) == 0


@pytest.mark.parametrize("ahead", [1, LENGTH, 3 * LENGTH])
def test_rounds_with_a_target_context_each_cause_no_update_of_their_own(ahead):
    """However late their rewards are."""
    learner = Learner(small_config(), seed=2)
    assert len(teach(learner, make_rounds(learner.config, LENGTH))) == 1
    seen = learner.context_counts
    for round_ in make_rounds(learner.config, ahead, seed=1):
        learner.observe_context(round_.reference, Domain.SOURCE, round_.context)
        learner.observe_context(-1 - round_.reference, Domain.TARGET, round_.context)
        assert learner.next_update(seen) is None


def test_the_training_set_says_how_many_contexts_had_come():
    learner = Learner(small_config(), seed=2)  # keeps 24 of each domain
    teach(learner, make_rounds(learner.config, 2 * LENGTH - 1))
    learner.observe(*make_rounds(learner.config, 1, seed=1))
    assert learner.pending is not None
    assert learner.pending.data.contexts == ContextCounts(2 * LENGTH - 1, 2 * LENGTH - 1)
    back = restore(to_bytes(learner, 1)).pending
    assert back is not None
    assert back.data.contexts == ContextCounts(24, 24)
