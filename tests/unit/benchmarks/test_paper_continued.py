"""Continued training: the rounds, their regret, and what the curve keeps of it."""

import numpy as np
import pytest

from benchmarks.datasets.task import TransferTask, unsplit_task
from benchmarks.paper.continued import play_from_scratch, play_on, thinned_curve
from benchmarks.paper.playing import play
from model.config import BanditConfig
from model.rounds import Domain, Phase
from tests.support.builders import small_config

ROUNDS = 20


@pytest.fixture
def task() -> TransferTask:
    """One context, over and over: arm 1 pays 1 on the source, arm 2 on the target."""
    contexts = np.ones((6, 4), np.float32)
    source, target = np.eye(3, dtype=np.float32)[[1] * 6], np.eye(3, dtype=np.float32)[[2] * 6]
    return unsplit_task("one context", ("a", "b", "c"), (contexts, source), (contexts, target))


def greedy_linucb(task: TransferTask) -> BanditConfig:
    """φ = x / ‖x‖ = ½ everywhere, no bonus: the arm with the highest mean, the first among equals."""
    return small_config(
        **task.config_values(), encoder="identity", alpha=0.0, ridge=1.0, episode_length=1 << 20
    )


def test_regret_from_scratch_is_what_a_hand_made_case_says(task):
    # θ = 0 for all arms: arm 0 is tried, pays 0 and stays at θ = 0, so it is chosen for ever.
    run, regret = play_from_scratch(task, greedy_linucb(task), seed=0, rounds=ROUNDS)
    assert regret.tolist() == [1.0] * ROUNDS
    assert run.seconds > 0


def test_regret_after_the_source_is_what_a_hand_made_case_says(task):
    # With a wide bonus each arm is tried in turn on the source, 0 then 1, and 1 is kept: n rounds
    # of reward 1 give arm 1 the mean n/(n + 1). On the target it pays 0; after m such rounds its
    # mean is n/(n + 1 + m), still above all others: the head start is all wrong and never recovers.
    config = greedy_linucb(task).changed(alpha=0.4)
    run = play(task, config, seed=0, rounds=8)
    assert run.regret.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    regret = play_on(run, task, seed=0, rounds=ROUNDS)
    mean = np.array([7 / (8 + m) for m in range(ROUNDS)])
    bonus = 0.4 / np.sqrt(8 + np.arange(ROUNDS))
    untried = 0.4  # arm 2 has never been pulled
    first = int(np.argmax(mean + bonus < untried))
    assert first > 0
    assert regret.tolist() == [1.0] * first + [0.0] * (ROUNDS - first)


def test_the_target_is_closed_before_and_open_after(task):
    run = play(task, greedy_linucb(task), seed=0, rounds=8)
    phases: list[Phase] = [run.learner.phase]
    play_on(run, task, seed=0, rounds=ROUNDS)
    phases.append(run.learner.phase)
    assert phases == [Phase.ZERO_SHOT, Phase.CONTINUED]
    assert run.learner.reward_counts == {Domain.SOURCE: 8, Domain.TARGET: ROUNDS}
    assert len(run.regret) == 8 + ROUNDS


def test_a_thinned_curve_keeps_the_last_round_and_at_most_so_many_points():
    regret = np.random.default_rng(0).random(1920)
    curve = thinned_curve(regret)
    assert len(curve["rounds"]) == len(curve["regret"]) == 100
    assert curve["rounds"][-1] == 1920
    assert curve["regret"][-1] == pytest.approx(regret.sum())
    assert curve["regret"][0] == pytest.approx(regret[: int(curve["rounds"][0])].sum())


def test_a_short_curve_is_kept_whole():
    assert thinned_curve(np.array([1.0, 0.0, 1.0])) == {
        "rounds": [1, 2, 3],
        "regret": [1.0, 1.0, 2.0],
    }
