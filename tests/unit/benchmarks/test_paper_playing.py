"""The paper's loop in process: the quick rule is the policy's, and each sample is shown once."""

import numpy as np
import pytest
import torch

from benchmarks.datasets.simulated import simulated_task
from benchmarks.datasets.task import TransferTask, one_hot, unsplit_task
from benchmarks.paper import playing
from benchmarks.paper.methods import BY_NAME
from benchmarks.paper.playing import Run, play, sampled_rows, strides
from benchmarks.paper.quick_ucb import QuickUCB
from benchmarks.paper.scoring import by_learner, chosen_arms
from model.bandit.linucb import LinUCB
from model.config import BanditConfig
from model.learner import Learner
from model.rounds import Domain
from tests.support.builders import make_rounds, small_config, teach


@pytest.fixture
def task() -> TransferTask:
    """Twelve samples of each domain, three arms, four numbers."""
    rng = np.random.default_rng(0)
    source, target = rng.standard_normal((2, 12, 4)).astype(np.float32)
    rewards = one_hot(np.arange(12) % 3, 3)
    return unsplit_task("tiny", ("a", "b", "c"), (source, rewards), (target, rewards))


def config_on(task: TransferTask, **changes: object) -> BanditConfig:
    return small_config(**{**task.config_values(), "epsilon": 0.0, **changes})


@pytest.mark.parametrize("alpha", [0.05, 1.0])
def test_the_quick_rule_chooses_the_policys_arms_on_the_same_statistics(alpha):
    learner = Learner(small_config(alpha=alpha, epsilon=0.0), seed=0)
    teach(learner, make_rounds(learner.config, 40))
    rule = QuickUCB(learner.statistics, alpha)
    contexts = np.random.default_rng(1).standard_normal((300, 4)).astype(np.float32)
    scores = learner.policy().score_many(contexts, Domain.SOURCE)
    encoded = learner.networks.encode(torch.from_numpy(contexts), Domain.SOURCE).numpy()
    arms = np.array([rule.arm(z) for z in rule.prepared(encoded)])
    assert len(set(arms.tolist())) == 3
    chosen = scores.ucb[np.arange(300), arms]
    np.testing.assert_allclose(chosen, scores.ucb.max(axis=1), atol=1e-5)


def test_the_quick_rule_after_many_rounds_is_the_rule_of_the_folded_statistics():
    rng = np.random.default_rng(2)
    statistics = LinUCB(3, 5, 0.7)
    rule = QuickUCB(statistics, 0.3)
    latents = rng.standard_normal((200, 5)).astype(np.float32)
    arms, rewards = rng.integers(3, size=200), rng.random(200)
    for z, arm, reward in zip(rule.prepared(latents), arms, rewards, strict=True):
        rule.fold(z, int(arm), float(reward))
    statistics.fold(latents, arms, rewards)
    afresh = QuickUCB(statistics, 0.3)
    np.testing.assert_allclose(rule.inverse.numpy(), np.linalg.inv(statistics.A), atol=1e-12)
    np.testing.assert_allclose(rule.theta.numpy(), afresh.theta.numpy(), atol=1e-12)
    np.testing.assert_allclose(rule.inverse.numpy(), afresh.inverse.numpy(), atol=1e-12)


def test_the_rule_leaves_the_statistics_that_it_started_from_alone():
    statistics = LinUCB(2, 3, 1.0)
    statistics.fold(np.eye(3, dtype=np.float32), np.array([0, 1, 0]), np.ones(3))
    theta = statistics.factors().theta.copy()
    rule = QuickUCB(statistics, 0.1)
    rule.fold(rule.prepared(np.ones((1, 3), np.float32))[0], 0, 0.0)
    np.testing.assert_array_equal(statistics.factors().theta, theta)


def test_a_domain_with_a_theta_of_its_own_is_played_by_it():
    statistics = LinUCB(2, 3, 1.0)
    statistics.fold(np.eye(3, dtype=np.float32), np.array([0, 1, 0]), np.ones(3))
    statistics.target_shift = np.full((2, 3), 0.5)
    run = Run(Learner(small_config(), seed=0), np.zeros(0))
    run.learner.statistics = statistics
    for domain in (Domain.SOURCE, Domain.TARGET, Domain.SOURCE):
        expected = statistics.factors().theta_of(domain)
        np.testing.assert_array_equal(run.rule(domain).theta.numpy(), expected)
    assert run.rule(Domain.SOURCE) is run.rule(Domain.SOURCE)


def test_each_sample_is_shown_once_a_pass():
    shown = sampled_rows(3, "source", 10, 25)
    assert sorted(shown[:10]) == sorted(shown[10:20]) == list(range(10))
    assert len(set(shown[20:].tolist())) == 5
    assert shown[:10].tolist() != shown[10:20].tolist()
    assert sampled_rows(4, "source", 10, 25).tolist() != shown.tolist()


def test_an_update_never_falls_within_the_rounds_that_are_encoded_at_once():
    config = small_config(episode_length=16)
    assert strides(config, 40) == [slice(0, 16), slice(16, 32), slice(32, 40)]
    assert strides(config.changed(episode_length=1 << 20), 130)[-1] == slice(128, 130)


def test_a_run_folds_every_round_and_trains_after_each_episode(task):
    received: list[int] = []
    run = play(task, config_on(task), seed=1, rounds=40, on_rounds=received.append)
    assert run.learner.reward_counts == {Domain.SOURCE: 40, Domain.TARGET: 0}
    assert [run.learner.contexts[domain].count for domain in Domain] == [40, 40]
    assert len(run.verdicts) == 2
    assert run.regret.shape == (40,)
    assert set(run.regret.tolist()) == {0.0, 1.0}
    assert sum(received) == 40


def test_summing_up_long_latents_at_the_end_changes_nothing(task, monkeypatch):
    config = config_on(task, encoder="identity", episode_length=1 << 20, alpha=0.5)
    folded = play(task, config, seed=1, rounds=40)
    monkeypatch.setattr(playing, "LARGE", 3)
    deferred = play(task, config, seed=1, rounds=40)
    np.testing.assert_array_equal(folded.regret, deferred.regret)
    np.testing.assert_allclose(folded.learner.statistics.A, deferred.learner.statistics.A)
    np.testing.assert_allclose(folded.learner.statistics.b, deferred.learner.statistics.b)


def test_greedy_arms_are_the_highest_means_of_the_policy():
    simulated = simulated_task("simulated:shifted-0")
    run = play(simulated, BY_NAME["linucb"].config(simulated), seed=0, rounds=200)
    contexts = simulated.test_contexts[:500]
    arms = chosen_arms(by_learner(run.learner), contexts, Domain.TARGET)
    means = run.learner.policy().score_many(contexts, Domain.TARGET).mean
    np.testing.assert_allclose(means[np.arange(500), arms], means.max(axis=1), atol=1e-5)
