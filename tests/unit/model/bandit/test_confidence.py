"""Transfer confidence: what each sign does to it, and that it is the same wherever it is computed."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from model.bandit.confidence import (
    QUANTILES,
    Confidence,
    HeldOut,
    decision_scores,
    logistic_fit,
    prototypes_of,
)
from model.learner import Learner
from model.rounds import Doubles
from tests.support.builders import make_rounds, small_config, teach

RNG = np.random.default_rng(5)
CENTERS = np.eye(3, 6)


START = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    RNG.bit_generator.state = START


def unit(rows: Doubles) -> Doubles:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def around(centers: Doubles, count: int) -> tuple[Doubles, Any]:
    """Latents near the centers, and which."""
    classes = RNG.integers(len(centers), size=count)
    return unit(centers[classes] + 0.1 * RNG.standard_normal((count, 6))), classes


def fitted(target_centers: Doubles = CENTERS, **changes: Any) -> Confidence:
    """On a source whose best arm is the nearest center."""
    source, _ = around(CENTERS, 300)
    latents, classes = around(CENTERS, 200)
    predicted = latents @ CENTERS.T
    arms = np.where(RNG.random(200) < 0.9, predicted.argmax(1), RNG.integers(3, size=200))
    held = HeldOut(latents, predicted, arms, (arms == classes).astype(float))
    held = dataclasses.replace(held, **changes)
    target, _ = around(target_centers, 300)
    found = Confidence.fitted(source, held, target, small_config(exclusive_rewards=True))
    assert found is not None
    return found


def rate(found: Confidence, latents: Doubles, score: float = 0.8, width: float = 0.1) -> Doubles:
    count = len(latents)
    return found.rate(latents.astype(np.float32), np.full(count, score), np.full(count, width), 1.0)


def test_a_supported_context_with_a_clear_margin_is_trusted():
    found = fitted()
    assert found.overlap == 1.0
    assert rate(found, CENTERS).min() > 0.8


def test_each_sign_lowers_it():
    found = fitted()
    far = unit(np.ones((1, 6)) * [-1, -1, -1, 1, 1, 1])
    base = rate(found, CENTERS[:1])
    assert rate(found, CENTERS[:1], score=0.0) < base
    assert rate(found, CENTERS[:1], width=0.7) < 0.6 * base
    assert rate(found, far) < 0.7 * base
    apart = fitted(-CENTERS)
    assert apart.overlap < 0.1
    assert rate(apart, CENTERS).max() < 0.1


def test_contexts_of_the_target_alone_have_low_odds():
    found = fitted(np.concatenate([CENTERS, -CENTERS[:1]]))
    assert 0.2 < found.overlap < 1.0
    assert rate(found, -CENTERS[:1])[0] < 0.3 * rate(found, CENTERS[1:2])[0]


def test_it_stays_between_0_and_1():
    latents = unit(RNG.standard_normal((500, 6)))
    for score, width in ((-1e9, 0.0), (1e9, 0.0), (0.5, 1.0), (0.5, 1e9)):
        found = rate(fitted(), latents, score, width)
        assert found.min() >= 0.0
        assert found.max() <= 1.0


def test_it_is_calibrated_on_the_source():
    latents, _ = around(CENTERS, 4000)
    predicted = latents @ CENTERS.T
    # The margin says how likely the best-rated arm is right, and it is wrong that often.
    margins = decision_scores(predicted, is_joint=False)
    right = RNG.random(4000) < 1 / (1 + np.exp(1 - 3 * margins))
    held = HeldOut(latents, predicted, predicted.argmax(1), right.astype(float))
    source, target = around(CENTERS, 500)[0], around(CENTERS, 500)[0]
    found = Confidence.fitted(source, held, target, small_config())
    assert found is not None
    output = 1 / (1 + np.exp(-(found.decision[0] + found.decision[1] * margins)))
    assert abs(output.mean() - right.mean()) < 0.02
    low, high = margins < np.median(margins), margins >= np.median(margins)
    for part in (low, high):
        assert abs(output[part].mean() - right[part].mean()) < 0.05


def test_too_little_data_gives_none():
    latents, arms = around(CENTERS, 31)
    held = HeldOut(latents, latents @ CENTERS.T, arms, np.ones(31))
    assert Confidence.fitted(latents, held, latents, small_config()) is None


def test_without_known_outcomes_it_says_one_half():
    found = fitted(
        arms=np.full(200, 0), predicted=np.tile([0.0, 1.0, 0.5], (200, 1)), rewards=np.zeros(200)
    )
    assert found.decision.tolist() == [0.0, 0.0]


def test_margins_are_over_eligible_arms():
    mean = np.array([[0.9, 0.5, 0.2]])
    assert decision_scores(mean, False) == pytest.approx([0.4])
    assert decision_scores(mean, False, np.array([[True, False, True]])) == pytest.approx([0.7])
    assert decision_scores(mean, False, np.array([[False, False, True]])) == pytest.approx([0.2])
    assert decision_scores(mean, True) == pytest.approx([0.9])
    assert decision_scores(mean[:, :1], False) == pytest.approx([0.9])


def test_prototypes_cover_what_there_is():
    latents, _ = around(CENTERS, 200)
    found = prototypes_of(latents, 8)
    assert found.shape == (8, 6)
    assert (latents @ found.T).max(axis=1).min() > 0.8
    assert prototypes_of(latents[:2], 8).shape == (2, 6)


def test_logistic_fit_finds_the_weights():
    rows = RNG.standard_normal((20_000, 2))
    labels = (RNG.random(20_000) < 1 / (1 + np.exp(-(0.5 + rows @ [1.0, -2.0])))).astype(float)
    assert logistic_fit(rows, labels, np.ones(20_000), 1e-3) == pytest.approx([0.5, 1, -2], abs=0.1)


def test_arrays_bring_it_back():
    found = fitted()
    again = Confidence.from_arrays(found.arrays(), 6)
    assert np.array_equal(rate(found, CENTERS), rate(again, CENTERS))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prototypes", np.zeros((64, 5))),
        ("domain", np.zeros(3)),
        ("decision", np.zeros(3)),
        ("distances", np.zeros(QUANTILES + 1)),
        ("distances", np.zeros(QUANTILES, dtype=np.float32)),
        ("overlap", np.array(1.5)),
        ("source_count", np.array(64)),
        ("source_count", np.array(3.0)),
        ("other", np.zeros(1)),
    ],
)
def test_other_arrays_are_refused(name: str, value: Any):
    with pytest.raises(ValueError, match=r"wrong|range"):
        Confidence.from_arrays({**fitted().arrays(), name: value}, 6)


def test_a_learner_without_target_contexts_has_none():
    learner = Learner(small_config(), seed=1)
    for round_ in make_rounds(learner.config, 48):
        learner.observe(round_)
        learner.train()
    assert learner.encoder_version > 0
    assert learner.confidence is None
    selection = learner.policy().select_target(make_contexts(learner, 5))
    assert selection.confidence.tolist() == [0.0] * 5


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
