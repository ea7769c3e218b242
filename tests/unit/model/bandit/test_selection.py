import numpy as np
import pytest
from scipy import stats

from model.bandit.selection import drawn_arms, entropy, mixed_probabilities
from model.learner import Learner
from model.randomness import KeyedUniforms, draw_keys
from model.rounds import Domain, Doubles, Integers, Keys
from tests.support.builders import make_rounds, small_config

DRAWS = 100_000
IDS = [f"decision-{i}" for i in range(DRAWS)]
KEYS = draw_keys(IDS)


def g_test(arms: Integers, probabilities: Doubles) -> float:
    """p-value of the observed arm counts under the stated probabilities (arms of p = 0 left out)."""
    counts = np.bincount(arms, minlength=len(probabilities))
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    expected = DRAWS * probabilities[possible]
    result = stats.power_divergence(counts[possible], expected, lambda_="log-likelihood")
    return float(result.pvalue)


@pytest.mark.parametrize(
    ("ucb", "eligible"),
    [
        ([0.1, 0.9, 0.5, 0.2], None),
        ([0.9, 0.9, 0.5, 0.9], None),
        ([0.1, 0.9, 0.5, 0.2], [True, False, True, True]),
        ([0.0, 0.0, 0.0, 0.0], [False, True, True, False]),
    ],
)
def test_drawn_arms_have_the_stated_probabilities(ucb, eligible):
    mask = None if eligible is None else np.array([eligible])
    probabilities = mixed_probabilities(np.array([ucb], dtype=np.float32), mask, 0.2)
    arms = drawn_arms(probabilities.repeat(DRAWS, axis=0), KeyedUniforms(3, "draw"), KEYS)
    assert g_test(arms, probabilities[0]) > 1e-4


def test_frozen_policy_draws_with_its_logged_probabilities():
    config = small_config(encoder="identity", epsilon=0.3)
    learner = Learner(config, seed=4)
    learner.observe(*make_rounds(config, 15))
    contexts = np.repeat(make_rounds(config, 1, seed=9)[0].context[None], DRAWS, axis=0)
    selection = learner.policy().select_many(contexts, Domain.SOURCE, IDS)
    assert (selection.probabilities == selection.probabilities[0]).all()
    assert g_test(selection.arms, selection.probabilities[0]) > 1e-4


def test_best_arm_gets_all_but_the_explored_share():
    p = mixed_probabilities(np.array([[0.1, 0.9, 0.5]], dtype=np.float32), None, 0.3)
    np.testing.assert_allclose(p, [[0.1, 0.8, 0.1]])


def test_ties_are_shared_evenly():
    p = mixed_probabilities(np.array([[0.9, 0.1, 0.9]], dtype=np.float32), None, 0.3)
    np.testing.assert_allclose(p, [[0.45, 0.1, 0.45]])


def test_difference_of_rounding_size_is_a_tie():
    p = mixed_probabilities(
        np.array([[0.9, np.nextafter(np.float32(0.9), np.float32(1))]]), None, 0
    )
    np.testing.assert_allclose(p, [[0.5, 0.5]])


def test_difference_above_the_tolerance_is_no_tie():
    p = mixed_probabilities(np.array([[0.9, 0.90001]], dtype=np.float32), None, 0.0)
    np.testing.assert_array_equal(p, [[0.0, 1.0]])


def test_ineligible_best_arm_gets_nothing():
    mask = np.array([[True, False, True]])
    p = mixed_probabilities(np.array([[0.1, 0.9, 0.5]], dtype=np.float32), mask, 0.2)
    np.testing.assert_allclose(p, [[0.1, 0.0, 0.9]])


def test_negative_scores_change_nothing():
    mask = np.array([[True, True, False]])
    p = mixed_probabilities(np.array([[-3.0, -2.0, -1.0]], dtype=np.float32), mask, 0.0)
    np.testing.assert_array_equal(p, [[0.0, 1.0, 0.0]])


def test_full_exploration_is_uniform():
    p = mixed_probabilities(np.array([[0.1, 0.9]], dtype=np.float32), None, 1.0)
    np.testing.assert_allclose(p, [[0.5, 0.5]])


def test_draw_depends_on_seed_and_key_alone():
    p, keys, uniforms = np.full((50, 4), 0.25), KEYS[:50], KeyedUniforms(3, "draw")
    alone = [int(drawn_arms(p[:1], uniforms, keys[i : i + 1])[0]) for i in range(50)]
    np.testing.assert_array_equal(drawn_arms(p, uniforms, keys), alone)
    assert (drawn_arms(p, KeyedUniforms(4, "draw"), keys) != alone).any()


def test_last_arm_of_probability_zero_is_never_drawn():
    p = np.tile([0.1] * 10 + [0.0], (2000, 1))  # its sum is 0.9999999999999999
    assert drawn_arms(p, KeyedUniforms(0, "draw"), KEYS[:2000]).max() == 9


class FixedUniforms(KeyedUniforms):
    """Every key draws the same point."""

    def __init__(self, point: float) -> None:
        self.point = point

    def one(self, key: int) -> float:
        return self.point

    def many(self, keys: Keys) -> Doubles:
        return np.full(len(keys), self.point)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("point", "arm"), [(0.0, 1), (0.7, 3), (1 - 2.0**-53, 3)])
def test_outermost_draws_hit_arms_of_positive_probability(count, point, arm):
    p = np.tile([0.0, 0.7, 0.0, 0.3, 0.0], (count, 1))
    assert drawn_arms(p, FixedUniforms(point), KEYS[:count]).tolist() == [arm] * count


@pytest.mark.parametrize("count", [1, 2])
def test_highest_draw_stays_inside_a_table_that_does_not_reach_one(count):
    p = np.full((count, 10), 0.1)  # its sum is 0.9999999999999999
    assert drawn_arms(p, FixedUniforms(1 - 2.0**-53), KEYS[:count]).tolist() == [9] * count


@pytest.mark.parametrize(
    ("probabilities", "nats"),
    [([1.0, 0.0], 0.0), ([0.25] * 4, np.log(4)), ([0.5, 0.25, 0.25, 0.0], 1.5 * np.log(2))],
)
def test_entropy_is_that_of_the_textbook(probabilities, nats):
    assert entropy(np.array(probabilities)) == pytest.approx(nats, abs=1e-15)
