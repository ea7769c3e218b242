"""Target values without target rewards: corrected where the source reaches, refused where not."""

import numpy as np
import pytest

from model.ope.density_ratio import discriminator_ratio, logistic_ratio
from model.ope.intervals import Interval
from model.ope.target import SourceRounds, TargetValue, _why_not_identifiable, target_value

THETA = np.random.default_rng(0).standard_normal((3, 4))


def expected(latents: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-latents @ THETA.T)))


def policy(latents: np.ndarray) -> np.ndarray:
    return np.asarray(0.8 * np.eye(3)[(latents @ THETA.T).argmax(axis=1)] + 0.2 / 3)


def target_of(rng: np.random.Generator, count: int, shift: float) -> np.ndarray:
    moved = rng.standard_normal((count, 4))
    moved[:, 0] += shift
    return moved


def truth(shift: float) -> float:
    many = target_of(np.random.default_rng(9), 200_000, shift)
    return float((policy(many) * expected(many)).sum(axis=1).mean())


def source_rounds(rng: np.random.Generator, n: int = 2000) -> SourceRounds:
    latents = rng.standard_normal((n, 4))
    arms = rng.integers(3, size=n)
    rewards = (rng.random(n) < expected(latents)[np.arange(n), arms]).astype(float)
    return SourceRounds(latents, policy(latents), arms, rewards, np.full(n, 1 / 3))


def valued(seed: int, shift: float) -> TargetValue:
    rng = np.random.default_rng(seed)
    source, target = source_rounds(rng), target_of(rng, 1000, shift)
    return target_value(source, target, policy(target), seed)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_target_value_is_found_without_target_rewards(shift: float):
    right = truth(shift)
    found = [valued(seed, shift) for seed in range(5)]
    for each in found:
        assert each.is_identifiable
        assert each.interval is not None
        assert each.value is not None
    hits = [each.interval.low <= right <= each.interval.high for each in found if each.interval]
    assert sum(hits) >= 4
    assert np.mean([each.value for each in found if each.value]) == pytest.approx(right, abs=0.02)


def test_the_source_value_would_have_been_wrong():
    assert truth(0.0) - truth(1.0) > 0.05


def test_the_ratio_corrects_a_reward_model_that_is_wrong():
    """A step in the reward, which no ridge regression can follow: on the target it lies elsewhere."""
    errors = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        source, target = source_rounds(rng), target_of(rng, 1000, 1.0)
        chances = 0.1 + 0.8 * (source.latents[:, 0] > 1.0)
        rewards = (rng.random(2000) < chances).astype(float)
        source = SourceRounds(
            source.latents, source.policy, source.arms, rewards, source.propensities
        )
        found = target_value(source, target, policy(target), seed)
        errors.append((found.value or 0.0) - 0.5)
    assert abs(np.mean(errors)) < 0.04


def test_no_overlap_is_said_not_guessed():
    found = valued(1, 6.0)
    assert not found.is_identifiable
    assert "separates the domains" in (found.reason or "")
    assert (found.value, found.interval, found.checked) == (None, None, None)
    assert found.as_dict()["interval"] is None


def test_too_few_rounds_are_said():
    rng = np.random.default_rng(2)
    target = target_of(rng, 500, 1.0)
    found = target_value(source_rounds(rng, 40), target, policy(target), 2)
    assert not found.is_identifiable
    assert "effective sample size" in (found.reason or "")


def test_ratios_that_disagree_identify_nothing():
    ends = Interval(0.4, 0.5)
    assert _why_not_identifiable(100.0, 0.6, (0.45, 0.54), ends) is None
    assert "disagree" in (_why_not_identifiable(100.0, 0.6, (0.45, 0.56), ends) or "")


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_both_ratios_follow_the_true_one(shift: float):
    rng = np.random.default_rng(4)
    source, target = rng.standard_normal((3000, 4)), target_of(rng, 3000, shift)
    true = np.exp(shift * source[:, 0] - shift**2 / 2)
    ratio, accuracy = discriminator_ratio(source, target, 0)
    other = logistic_ratio(source, target, 0)
    assert ratio.mean() == pytest.approx(1.0)
    assert other.mean() == pytest.approx(1.0)
    if shift:
        assert np.corrcoef(np.log(ratio), np.log(true))[0, 1] > 0.9
        assert np.corrcoef(other, true.clip(max=5))[0, 1] > 0.6
        assert accuracy > 0.6
    else:
        assert ratio.std() < 0.15
        assert other.std() < 0.5
