"""Which update begins next: the rule by counts."""

from dataclasses import replace

import pytest

from model.training.schedule import Cause, ContextCounts, NextUpdate, Progress, next_update
from tests.support.builders import small_config

CONFIG = small_config()  # episodes of 16
IDLE = Progress(due_updates=0, rewards_in_episode=0, rounds_kept=48, contexts=ContextCounts(90, 0))


def test_nothing_follows_when_nothing_is_due():
    assert next_update(CONFIG, IDLE, ContextCounts(90, 0)) is None


def test_what_is_due_follows_one_by_one():
    behind = replace(IDLE, due_updates=3)
    assert next_update(CONFIG, behind, None) == NextUpdate(Cause.REWARDS, 1)


def test_updates_are_not_made_up_for_rewards_that_are_forgotten():
    behind = replace(IDLE, due_updates=10)  # the 48 rounds that are kept are worth 3
    assert next_update(CONFIG, behind, None) == NextUpdate(Cause.REWARDS, 8)


@pytest.mark.parametrize("changes", [{"steps_per_episode": 0}, {"gate": "manual"}], ids=str)
def test_one_update_does_where_none_builds_on_the_one_before(changes):
    behind = replace(IDLE, due_updates=3)
    assert next_update(small_config(**changes), behind, None) == NextUpdate(Cause.REWARDS, 3)


@pytest.mark.parametrize(
    ("seen", "source", "target", "follows"),
    [
        (0, 90, 15, False),
        (0, 90, 16, True),  # an episode's number of them
        (0, 95, 20, False),  # one for each new round of the source is as it should be
        (0, 95, 21, True),
        (100, 90, 124, False),
        (100, 90, 125, True),  # a quarter of what the last update had
        (None, 90, 1000, False),  # there was no update, or nobody knows what it had
    ],
)
def test_an_update_follows_many_new_target_contexts(seen, source, target, follows):
    progress = replace(IDLE, contexts=ContextCounts(source, target))
    wanted = NextUpdate(Cause.TARGET_CONTEXTS, 0) if follows else None
    before = None if seen is None else ContextCounts(90, seen)
    assert next_update(CONFIG, progress, before) == wanted


def test_rewards_come_first():
    progress = replace(IDLE, due_updates=1, contexts=ContextCounts(90, 1000))
    assert next_update(CONFIG, progress, ContextCounts(90, 0)) == NextUpdate(Cause.REWARDS, 1)
