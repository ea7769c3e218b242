"""Offline evaluation: estimates, their support, and when nothing is stated."""

import numpy as np
import pytest

from model.learner import Learner
from model.ope.candidates import (
    EvaluationPolicy,
    FixedArmCandidate,
    FrozenCandidate,
    LearningCandidate,
    TableCandidate,
    UniformCandidate,
)
from model.ope.estimates import EvaluationOptions, ValueEstimator
from model.ope.intervals import Blocks
from model.ope.logged import LoggedRounds
from model.ope.rejection import RejectionReplay
from model.ope.reward_model import MOST_FEATURES, RidgeRewards
from model.ope.sequence import ValueSequence
from model.rounds import Domain
from tests.support.builders import make_rounds, small_config, teach
from tests.support.ope import logged_rounds
from tests.support.small_world import SmallWorld


def uniform_log(n: int, arm_count: int = 4, seed: int = 0, size: int = 4) -> LoggedRounds:
    rng = np.random.default_rng(seed)
    arms = rng.integers(arm_count, size=n)
    contexts = rng.standard_normal((n, size)).astype(np.float32)
    rewards = (rng.random(n) < 0.2 + 0.6 * (arms == 1)).astype(float)
    return logged_rounds(arms, rewards, np.full((n, arm_count), 1 / arm_count), contexts)


def estimated_by(
    rounds: LoggedRounds, candidate: EvaluationPolicy, **options: float
) -> ValueEstimator:
    estimator = ValueEstimator(EvaluationOptions(**options))  # type: ignore[arg-type]
    policy = candidate.probabilities(rounds)
    estimator.add(rounds, policy, np.zeros_like(policy))
    return estimator


def test_a_policy_of_one_arm_is_worth_its_mean_reward():
    rounds = uniform_log(400)
    found = estimated_by(rounds, FixedArmCandidate(1)).valuation()
    own = rounds.rewards[rounds.arms == 1]
    assert found.estimates["snips"].value == pytest.approx(own.mean())
    assert found.estimates["replay"].value == pytest.approx(own.mean())
    assert found.estimates["ips"].value == pytest.approx(4 * own.sum() / 400)
    assert found.support.effective_rounds == pytest.approx(len(own))
    assert (found.support.max_weight, found.support.overlap) == (4.0, 1.0)
    interval = found.estimates["dr"].interval
    assert interval is not None
    assert interval.low < 0.8 < interval.high


def test_below_30_effective_rounds_no_interval_is_stated():
    found = estimated_by(uniform_log(100), FixedArmCandidate(1)).valuation()
    assert found.support.effective_rounds < 30
    assert found.sequence is None
    assert all(each.interval is None for each in found.estimates.values())
    assert "no interval is stated" in found.warnings[0]
    assert estimated_by(uniform_log(100), FixedArmCandidate(1)).bootstrap() is None


def test_without_a_weight_bound_ips_has_no_interval_and_says_why():
    rounds = uniform_log(1000)
    free = estimated_by(rounds, FixedArmCandidate(1)).valuation().as_dict()["estimates"]
    assert free["ips"]["interval"] is None
    assert "no bound on the weights" in free["ips"]["no_interval"]
    assert free["ips"]["standard_error"] is not None
    for name in ("dr", "snips"):
        assert free[name]["interval"] is not None
        assert free[name]["no_interval"] is None
    bounded = estimated_by(rounds, FixedArmCandidate(1), max_weight=4.0).valuation()
    assert bounded.estimates["ips"].interval is not None


def test_the_direct_method_is_never_the_headline_and_has_no_interval():
    found = estimated_by(uniform_log(1000), UniformCandidate()).valuation()
    assert found.headline == "dr"
    assert found.estimates["dm"].interval is None
    assert found.as_dict()["value"] == found.estimates["dr"].value


def test_replay_is_for_uniform_logs_alone():
    logger = np.tile([0.7, 0.3], (100, 1))
    rounds = logged_rounds(np.arange(100) % 2, np.ones(100), logger)
    found = estimated_by(rounds, UniformCandidate()).valuation()
    assert not found.support.is_uniform_log
    assert found.estimates["replay"].value is None


def test_an_empty_log_has_no_values():
    found = ValueEstimator().valuation()
    assert found.support.rounds == 0
    assert all(each.value is None for each in found.estimates.values())


@pytest.mark.parametrize("n", [1, 2, 50])
def test_all_weights_zero(n: int):
    rounds = logged_rounds(np.zeros(n), np.ones(n), np.tile([1.0, 0.0], (n, 1)))
    estimator = ValueEstimator()
    estimator.add(rounds, np.tile([0.0, 1.0], (n, 1)), np.zeros((n, 2)))
    found = estimator.valuation()
    assert found.estimates["ips"].value == 0.0
    assert found.estimates["snips"].value is None
    assert (found.support.overlap, found.support.effective_rounds) == (0.0, 0.0)
    assert any("could not have made 100.0%" in each for each in found.warnings)


def test_a_log_without_any_reward_is_worth_nothing():
    rounds = logged_rounds(np.zeros(200), np.zeros(200), np.ones((200, 1)))
    found = estimated_by(rounds, UniformCandidate(), max_weight=1.0).valuation()
    assert found.value == 0.0
    interval = found.estimates["ips"].interval
    assert interval is not None
    assert (interval.low, 0 < interval.high < 0.03) == (0.0, True)


def test_wrong_propensities_are_noticed():
    rng = np.random.default_rng(0)
    rounds = logged_rounds(
        rng.integers(2, size=2000), np.ones(2000), np.tile([0.9, 0.1], (2000, 1))
    )
    found = estimated_by(rounds, FixedArmCandidate(1)).valuation()
    assert any("far from 1" in each for each in found.warnings)


def test_rounds_of_many_versions_are_weighted_each_by_its_own_propensity():
    rng = np.random.default_rng(1)
    logger = np.where(np.arange(4000)[:, None] < 2000, [[0.9, 0.1]], [[0.2, 0.8]])
    arms = (rng.random(4000) > logger[:, 0]).astype(int)
    made = logged_rounds(arms, (arms == 1).astype(float), logger)
    rounds = LoggedRounds(
        **{
            **{name: getattr(made, name) for name in LoggedRounds.__slots__},
            "versions": np.arange(4000) // 2000,
        }
    )
    found = estimated_by(rounds, FixedArmCandidate(1)).valuation()
    assert found.support.version_count == 2
    assert found.estimates["ips"].value == pytest.approx(
        1.0, abs=4 * (found.estimates["ips"].standard_error or 0)
    )


def test_a_weight_beyond_the_stated_bound_is_an_error():
    with pytest.raises(ValueError, match="max_weight"):
        ValueSequence(0.95, 2.0).extend(np.array([2.5]), np.array([1.0]))


def test_dr_is_unbiased_whatever_the_reward_model_says():
    world = SmallWorld(seed=1, arm_count=3)
    policy, errors = world.greedy(), []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rounds, seen = world.log(np.full((12, 3), 1 / 3), 400, rng)
        estimator = ValueEstimator()
        estimator.add(rounds, policy[seen], rng.random((400, 3)))
        errors.append((estimator.valuation().estimates["dr"].value or 0) - world.value(policy))
    assert abs(np.mean(errors)) < 3 * np.std(errors) / np.sqrt(len(errors))


def test_a_good_reward_model_makes_dr_more_precise_than_ips():
    world = SmallWorld(seed=1, arm_count=3, is_binary=False)
    rounds, seen = world.log(np.full((12, 3), 1 / 3), 2000, np.random.default_rng(0))
    estimator = ValueEstimator()
    estimator.add(rounds, world.greedy()[seen], world.expected[seen])
    found = estimator.valuation().estimates
    assert (found["dr"].standard_error or 1) < 0.8 * (found["ips"].standard_error or 0)


def test_the_reward_model_predicts_from_earlier_rounds_alone():
    rounds = uniform_log(500)
    model, other = RidgeRewards(4, False), RidgeRewards(4, False)
    assert (model.predict(rounds) == 0.5).all()
    model.learn(rounds.rows(0, 250))
    other.learn(rounds.rows(0, 250))
    later = rounds.rows(250, 500)
    changed = logged_rounds(later.arms, 1 - later.rewards, later.probabilities, later.contexts)  # type: ignore[arg-type]
    assert (model.predict(later) == other.predict(changed)).all()
    assert model.predict(later)[:, 1].mean() == pytest.approx(0.8, abs=0.1)


def test_the_reward_model_is_fitted_early_and_from_the_past():
    rounds = uniform_log(1000)
    changed = logged_rounds(rounds.arms, 1 - rounds.rewards, rounds.probabilities, rounds.contexts)  # type: ignore[arg-type]
    first, second = (RidgeRewards(4, False).predict_then_learn(each) for each in (rounds, changed))
    assert (first[:32] == 0.5).all()
    assert (first[32:64] != second[32:64]).any()
    assert abs(first[500:, 1].mean() - 0.8) < 0.1
    half = RidgeRewards(4, False)
    joined = [
        half.predict_then_learn(part) for part in (rounds.rows(0, 512), rounds.rows(512, 1000))
    ]
    assert np.concatenate(joined) == pytest.approx(first)


def test_wide_contexts_are_projected():
    rounds = uniform_log(300, size=MOST_FEATURES + 1)
    model = RidgeRewards(4, False)
    model.learn(rounds)
    assert model._theta.shape == (4, MOST_FEATURES + 1)


def test_blocks_hold_the_mean_within_their_bound():
    values = np.random.default_rng(0).random(5000)
    blocks = Blocks(capacity=64)
    for start in range(0, 5000, 37):
        blocks.add(values[start : start + 37])
    low, high = blocks.bootstrap(0.95, seed=0)
    width = 2 * 1.96 * values.std() / np.sqrt(5000)
    assert low < values.mean() < high
    assert high - low == pytest.approx(width, rel=0.3)
    assert len(blocks._sums) <= 64


def test_candidates_give_eligible_arms_all_the_probability():
    rounds = uniform_log(50)
    eligible = rounds.eligible.copy()
    eligible[::2, 1] = False
    eligible[np.arange(50), rounds.arms] = True
    narrowed = LoggedRounds(
        **{
            **{name: getattr(rounds, name) for name in LoggedRounds.__slots__},
            "eligible": eligible,
            "probabilities": None,
        }
    )
    config = small_config(arm_count=4)
    policy = Learner(config, 0).policy()
    table = TableCandidate({0: np.array([0.1, 0.2, 0.3, 0.4])})
    for candidate in (
        UniformCandidate(),
        FixedArmCandidate(1),
        table,
        FrozenCandidate(policy, Domain.SOURCE),
    ):
        found = candidate.probabilities(narrowed)
        assert found.sum(axis=1) == pytest.approx(1.0)
        assert (found[~eligible] == 0).all()


def test_a_table_must_fit_the_log():
    with pytest.raises(ValueError, match="no row"):
        TableCandidate({1: np.ones(4)}).probabilities(uniform_log(3))
    with pytest.raises(ValueError, match="have probability 0"):
        TableCandidate({0: np.zeros(4)}).probabilities(uniform_log(3))


def test_a_learning_candidate_never_sees_a_reward_before_it_is_asked():
    rounds = uniform_log(96)
    changed = logged_rounds(rounds.arms, 1 - rounds.rewards, rounds.probabilities, rounds.contexts)  # type: ignore[arg-type]
    config = small_config(arm_count=4, steps_per_episode=2)
    first = LearningCandidate(Learner(config, 3), refresh=32).probabilities(rounds)
    second = LearningCandidate(Learner(config, 3), refresh=32).probabilities(changed)
    assert (first[:32] == second[:32]).all()
    assert (first[32:] != second[32:]).any()


def test_a_learning_candidate_is_the_learner_itself():
    config = small_config(steps_per_episode=2, divergence_weight=1.0)
    received = make_rounds(config, 40)
    live = Learner(config, 7)
    teach(live, received)
    contexts = np.stack([each.context for each in received])
    rounds = logged_rounds(
        [each.arm for each in received],
        [each.reward for each in received],
        np.full((40, 3), 1 / 3),
        contexts,
    )
    given = {name: getattr(rounds, name) for name in LoggedRounds.__slots__}
    given |= {"unlabeled": 0.5 - contexts, "unlabeled_before": np.arange(40)}
    replayed = Learner(config, 7)
    LearningCandidate(replayed).probabilities(LoggedRounds(**given))
    assert replayed.encoder_version == live.encoder_version > 0
    assert (replayed.statistics.A == live.statistics.A).all()


def test_replay_keeps_what_the_learner_would_have_chosen():
    """A log that the learner itself could have made is kept whole; a uniform one by one in K."""
    config = small_config(arm_count=4, epsilon=0.2, episode_length=10**6)
    rounds = uniform_log(2000)
    replay = RejectionReplay(Learner(config, 3))
    policy, weights = replay.play(rounds)
    assert replay.kept_count == sum(replay.learner.reward_counts.values())
    assert replay.kept_count / 2000 == pytest.approx(1 / (4 * policy.max(axis=1)).mean(), rel=0.25)
    assert weights.mean() == pytest.approx(1.0, abs=0.1)
    same = LoggedRounds(
        **{
            **{name: getattr(rounds, name) for name in LoggedRounds.__slots__},
            "probabilities": np.full((2000, 4), 0.25),
        }
    )
    always = Learner(small_config(arm_count=4, epsilon=1.0, episode_length=10**6), 3)
    kept = RejectionReplay(always)
    kept.play(same)
    assert kept.kept_count == 2000


def test_replay_needs_the_whole_distribution():
    rounds = logged_rounds(
        np.zeros(4), np.ones(4), np.tile([0.7, 0.3], (4, 1)), np.ones((4, 4), np.float32)
    )
    given = {name: getattr(rounds, name) for name in LoggedRounds.__slots__}
    replay = RejectionReplay(Learner(small_config(arm_count=2), 0))
    with pytest.raises(ValueError, match="every arm"):
        replay.play(LoggedRounds(**{**given, "probabilities": None}))
    with pytest.raises(ValueError, match="never chose"):
        replay.play(LoggedRounds(**{**given, "probabilities": np.tile([1.0, 0.0], (4, 1))}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"propensities": np.zeros(5)}, "propensity"),
        ({"rewards": np.full(5, 1.5)}, "reward"),
        ({"eligible": np.zeros((5, 4), dtype=bool)}, "arm"),
    ],
)
def test_rounds_that_cannot_be_weighted_are_refused(change: dict[str, np.ndarray], message: str):
    rounds = uniform_log(5)
    rounds.check()
    given = {name: getattr(rounds, name) for name in LoggedRounds.__slots__}
    with pytest.raises(ValueError, match=message):
        LoggedRounds(**{**given, **change}).check()
