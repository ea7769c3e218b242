"""Transfer confidence: calibration on held-out source rounds, agreement of members, one meaning everywhere."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from model.bandit.confidence import (
    LEAST_ROUNDS,
    Agreement,
    Confidence,
    HeldOut,
    decision_scores,
    known_propensities,
    logistic_fit,
)
from model.learner import Learner
from model.rounds import UNKNOWN_PROPENSITY, Domain, Doubles
from tests.support.builders import make_rounds, small_config, teach

ALONE = Agreement(0, 1.0)
EXCLUSIVE = small_config(exclusive_rewards=True)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def sigmoid(values: Doubles) -> Doubles:
    return np.asarray(1 / (1 + np.exp(-values)))


def logged(rng: np.random.Generator, count: int, epsilon: float) -> tuple[HeldOut, Doubles]:
    """Rounds of an ε-greedy policy, and how often its best-rated arm is right at their margins.

    Exactly one of three arms pays; the wider the margin, the more often it is the best-rated one.
    """
    predicted = rng.random((count, 3))
    right = sigmoid(4 * decision_scores(predicted, is_joint=False) - 1)
    greedy = predicted.argmax(axis=1)
    others = (greedy + rng.integers(1, 3, count)) % 3
    paying = np.where(rng.random(count) < right, greedy, others)
    arms = np.where(rng.random(count) < epsilon, rng.integers(3, size=count), greedy)
    chance = np.where(arms == greedy, 1 - epsilon * 2 / 3, epsilon / 3)
    rewards = (arms == paying).astype(float)
    return HeldOut(predicted, arms, rewards, chance, np.ones(count, dtype=np.int64)), right


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0])
@pytest.mark.parametrize("is_exclusive", [True, False])
def test_it_is_calibrated_whatever_was_explored(
    rng: np.random.Generator, epsilon: float, is_exclusive: bool
):
    held_out, right = logged(rng, 8000, epsilon)
    config = small_config(exclusive_rewards=is_exclusive)
    found = Confidence.fitted(held_out, ALONE, config)
    assert found is not None
    margins = decision_scores(held_out.predicted, is_joint=False)
    rated = found.rate(margins)
    for part in (margins < 0.2, (margins >= 0.2) & (margins < 0.4), margins >= 0.4):
        assert abs(rated[part].mean() - right[part].mean()) < 0.04


def test_a_context_counts_once_however_often_it_was_played(rng: np.random.Generator):
    held_out, _ = logged(rng, 400, 0.2)
    again = np.repeat(np.arange(400), np.where(np.arange(400) < 40, 20, 1))
    repeats = np.where(again < 40, 20, 1)
    rows = {
        field.name: getattr(held_out, field.name)[again] for field in dataclasses.fields(HeldOut)
    }
    repeated = HeldOut(**{**rows, "repeats": repeats})
    once, often = (Confidence.fitted(each, ALONE, EXCLUSIVE) for each in (held_out, repeated))
    assert once is not None
    assert often is not None
    np.testing.assert_allclose(often.decision, once.decision, atol=1e-9)


def test_too_few_rounds_give_none(rng: np.random.Generator):
    assert Confidence.fitted(logged(rng, 31, 0.1)[0], ALONE, EXCLUSIVE) is None


def test_without_known_outcomes_it_says_one_half(rng: np.random.Generator):
    held_out, _ = logged(rng, 100, 0.1)
    others = (held_out.predicted.argmax(axis=1) + 1) % 3
    unseen = dataclasses.replace(held_out, arms=others, rewards=np.zeros(100))
    found = Confidence.fitted(unseen, ALONE, small_config())
    assert found is not None
    assert found.decision.tolist() == [0.0, 0.0]


def test_a_margin_against_the_rewards_only_orders_decisions(
    rng: np.random.Generator,
):
    held_out, _ = logged(rng, 500, 0.0)
    margins = decision_scores(held_out.predicted, is_joint=False)
    against = dataclasses.replace(held_out, rewards=(margins < np.median(margins)).astype(float))
    found = Confidence.fitted(against, ALONE, small_config())
    assert found is not None
    low, high = found.rate(np.array([0.0, 1.0]))
    assert low == pytest.approx(0.5, abs=0.01)
    assert low < high < low + 0.001


def test_with_two_arms_each_round_shows_both(rng: np.random.Generator):
    predicted = np.tile([1.0, 0.0], (200, 1))
    arms = rng.integers(2, size=200)
    rewards = (arms == 0).astype(float)  # the first arm always pays
    held_out = HeldOut(predicted, arms, rewards, np.full(200, 0.5), np.ones(200, dtype=np.int64))
    found = Confidence.fitted(held_out, ALONE, EXCLUSIVE)
    assert found is not None
    assert found.rate(np.ones(1))[0] > 0.95


def test_agreement_is_that_of_pairs_on_the_target_as_a_share_of_the_source():
    source = np.array([[0, 0, 0], [1, 1, 2]])  # 3 of 3 pairs, 1 of 3
    target = np.array([[0, 0, 1], [1, 1, 2]])  # 1 of 3 pairs, twice
    assert Agreement.of(source, target).share == pytest.approx(0.5)
    assert Agreement.of(target, source) == Agreement(3, 1.0)


@pytest.mark.parametrize(
    ("source", "members"),
    [(np.zeros((5, 0), int), 0), (np.zeros((5, 1), int), 1), (np.array([[0, 1]]), 2)],
    ids=["no members", "one member", "members that never agree"],
)
def test_without_a_comparison_the_agreement_counts_as_1(source: Any, members: int):
    assert Agreement.of(source, source) == Agreement(members, 1.0)


def test_disagreement_lowers_every_confidence_alike(rng: np.random.Generator):
    held_out, _ = logged(rng, 500, 0.1)
    alone, doubted = (
        Confidence.fitted(held_out, agreement, EXCLUSIVE)
        for agreement in (ALONE, Agreement(8, 0.5))
    )
    assert alone is not None
    assert doubted is not None
    margins = np.array([-1e9, 0.0, 0.3, 1e9])
    np.testing.assert_allclose(doubted.rate(margins), alone.rate(margins) / 2)
    assert alone.rate(margins).min() >= 0
    assert alone.rate(margins).max() <= 1


def test_an_unknown_propensity_is_how_often_its_arm_was_chosen():
    arms = np.array([0, 0, 1, 2])
    propensities = np.array([UNKNOWN_PROPENSITY, UNKNOWN_PROPENSITY, UNKNOWN_PROPENSITY, 0.3])
    found = known_propensities(propensities, arms)
    assert found == pytest.approx([2 / 3, 2 / 3, 1 / 3, 0.3])


def test_margins_are_over_eligible_arms():
    mean = np.array([[0.9, 0.5, 0.2]])
    assert decision_scores(mean, False) == pytest.approx([0.4])
    assert decision_scores(mean, False, np.array([[True, False, True]])) == pytest.approx([0.7])
    assert decision_scores(mean, False, np.array([[False, False, True]])) == pytest.approx([0.2])
    assert decision_scores(mean, True) == pytest.approx([0.9])
    assert decision_scores(mean[:, :1], False) == pytest.approx([0.9])


def test_logistic_fit_finds_the_weights(rng: np.random.Generator):
    rows = rng.standard_normal((20_000, 2))
    labels = (rng.random(20_000) < 1 / (1 + np.exp(-(0.5 + rows @ [1.0, -2.0])))).astype(float)
    assert logistic_fit(rows, labels, np.ones(20_000), 1e-3) == pytest.approx([0.5, 1, -2], abs=0.1)


def made() -> Confidence:
    return Confidence(np.array([0.5, 2.0]), 0.8, 8)


def test_arrays_bring_it_back():
    again = Confidence.from_arrays(made().arrays())
    assert again.rate(np.ones(1)) == made().rate(np.ones(1))
    assert (again.agreement, again.members) == (0.8, 8)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("decision", np.zeros(3)),
        ("decision", np.zeros(2, dtype=np.float32)),
        ("agreement", np.array(1.5)),
        ("agreement", np.array([0.5])),
        ("members", np.array(-1)),
        ("members", np.array(3.0)),
        ("other", np.zeros(1)),
    ],
)
def test_other_arrays_are_refused(name: str, value: Any):
    with pytest.raises(ValueError, match=r"wrong|range"):
        Confidence.from_arrays({**made().arrays(), name: value})


def test_a_learner_without_target_contexts_has_none():
    learner = Learner(small_config(), seed=1)
    for round_ in make_rounds(learner.config, 48):
        learner.observe(round_)
        learner.train()
    assert learner.encoder_version > 0
    assert learner.confidence is None
    selection = learner.policy().select_target(make_contexts(learner, 5))
    assert selection.confidence.tolist() == [0.0] * 5


def test_a_learner_that_holds_no_rounds_out_has_none():
    config = small_config(holdout_share=0.0, rebuild_window=200, reservoir_size=200)
    learner = Learner(config, seed=1)
    teach(learner, make_rounds(config, 96))
    assert len(learner.contexts[Domain.TARGET].references) >= LEAST_ROUNDS
    assert learner.encoder_version > 0
    assert learner.confidence is None


def make_contexts(learner: Learner, count: int) -> Any:
    shape = (count, *learner.config.context_shape)
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_target_decisions_are_the_best_arms_and_rated():
    config = small_config(holdout_share=0.5, rebuild_window=200, reservoir_size=200)
    learner = Learner(config, seed=1)
    teach(learner, make_rounds(config, 160))
    assert learner.confidence is not None
    policy = learner.policy()
    contexts = make_contexts(learner, 50)
    selection = policy.select_target(contexts)
    assert (selection.arms == selection.scores.ucb.argmax(axis=1)).all()
    assert set(selection.probabilities.ravel().tolist()) <= {0.0, 1.0}
    assert (selection.confidence > 0).all()
    assert (selection.confidence < 1).all()
    eligible = np.tile([False, True, True], (50, 1))
    narrowed = policy.select_target(contexts, eligible)
    assert set(narrowed.arms.tolist()) <= {1, 2}


def test_ties_are_drawn_by_the_context():
    learner = Learner(small_config(), seed=1)  # knows nothing: all arms tie
    contexts = make_contexts(learner, 300)
    first, second = (learner.policy().select_target(contexts) for _ in range(2))
    assert first.arms.tolist() == second.arms.tolist()
    assert min(np.bincount(first.arms, minlength=3)) > 60
    assert first.probabilities[0].tolist() == pytest.approx([1 / 3] * 3)
