import numpy as np
import pytest

from model.config import ContextKind
from model.rounds import Domain
from model.simulate import ClusterWorld, Draw
from tests.support.builders import small_config
from tests.support.worlds import LinearWorld, world_config

WORLDS = [
    ClusterWorld(seed=0),
    ClusterWorld(seed=0, graded=True),
    LinearWorld(seed=0),
    LinearWorld(seed=0, kind=ContextKind.PER_ARM),
]


@pytest.mark.parametrize("world", WORLDS)
def test_same_names_draw_the_same_rounds(world):
    first, second = (world.draw(Domain.TARGET, 20, "a", 1) for _ in range(2))
    np.testing.assert_array_equal(first.contexts, second.contexts)
    np.testing.assert_array_equal(first.expected, second.expected)
    assert not np.array_equal(world.draw(Domain.TARGET, 20, "a", 2).contexts, first.contexts)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("domain", Domain)
def test_expected_rewards_lie_between_zero_and_one(world, domain):
    draw = world.draw(domain, 200)
    assert draw.expected.min() >= 0
    assert draw.expected.max() <= 1
    assert draw.contexts.dtype == np.float32
    assert np.isfinite(draw.contexts).all()


@pytest.mark.parametrize("world", WORLDS)
def test_configuration_fits_the_contexts(world):
    config = world_config(world, small_config())
    contexts = world.draw(Domain.SOURCE, 3).contexts
    leading = (3, config.arm_count) if config.is_joint else (3,)
    assert contexts.shape == (*leading, *config.context_shape)
    assert config.exclusive_rewards is (isinstance(world, ClusterWorld) and not world.graded)


def test_exclusive_world_pays_exactly_one_arm():
    expected = ClusterWorld(seed=0).draw(Domain.SOURCE, 50).expected
    np.testing.assert_array_equal(np.sort(expected, axis=1), np.tile([0, 0, 0, 0, 1], (50, 1)))


def test_graded_world_pays_near_arms_more_than_far_ones():
    draw = ClusterWorld(seed=0, graded=True).draw(Domain.SOURCE, 50)
    first = draw.expected[draw.best_arms == 0][0]
    assert (np.diff(first) < 0).all()
    assert first[0] == pytest.approx(0.9)


def test_world_without_shift_has_one_domain():
    world = ClusterWorld(seed=0, shift=0.0)
    source, target = (world.draw(domain, 4000).contexts for domain in Domain)
    np.testing.assert_allclose(source.mean(0), target.mean(0), atol=0.06)
    np.testing.assert_allclose(np.cov(source.T), np.cov(target.T), atol=0.06)


def test_stronger_shift_moves_the_target_further():
    def distance(shift: float) -> float:
        world = ClusterWorld(seed=0, shift=shift)
        source, target = (world.draw(domain, 2000).contexts.mean(0) for domain in Domain)
        return float(np.linalg.norm(source - target))

    assert distance(0.0) < distance(0.5) < distance(1.5)


def test_source_does_not_depend_on_the_shift():
    near, far = (ClusterWorld(seed=0, shift=shift).draw(Domain.SOURCE, 9) for shift in (0.0, 2.0))
    np.testing.assert_array_equal(near.contexts, far.contexts)


def test_target_prior_change_the_target_alone():
    world = ClusterWorld(seed=0, arm_count=2, target_prior=(0.9, 0.1))
    shares = [world.draw(domain, 4000).best_arms.mean() for domain in Domain]
    np.testing.assert_allclose(shares, [0.5, 0.1], atol=0.03)


def test_no_linear_rule_is_best_in_a_cluster_world():
    world = ClusterWorld(seed=0, arm_count=8, size=4, noise=0.05)
    draw = world.draw(Domain.SOURCE, 3000)
    rows = np.hstack([draw.contexts, np.ones((3000, 1))])
    weights, *_ = np.linalg.lstsq(rows, draw.expected, rcond=None)
    assert ((rows @ weights).argmax(1) == draw.best_arms).mean() < 0.8


def test_linear_world_is_linear_in_unit_contexts():
    draw = LinearWorld(seed=3).draw(Domain.SOURCE, 200)
    np.testing.assert_allclose(np.linalg.norm(draw.contexts, axis=1), 1.0, atol=1e-6)
    _, residual, *_ = np.linalg.lstsq(draw.contexts, draw.expected - 0.5, rcond=None)
    assert residual.max() < 1e-10


def test_per_arm_world_has_one_theta_for_all_arms():
    draw = LinearWorld(seed=3, kind=ContextKind.PER_ARM).draw(Domain.SOURCE, 100)
    rows = draw.contexts.reshape(-1, 8).astype(np.float64)
    _, residual, *_ = np.linalg.lstsq(rows, draw.expected.reshape(-1) - 0.5, rcond=None)
    assert residual.max() < 1e-10


def test_regret_is_the_expected_reward_lost():
    draw = Draw(np.zeros((2, 1), dtype=np.float32), np.array([[0.2, 0.9], [0.5, 0.1]]))
    assert draw.best_arms.tolist() == [1, 0]
    np.testing.assert_allclose(draw.regret(np.array([0, 0])), [0.7, 0.0])


@pytest.mark.parametrize("graded", [False, True])
def test_cluster_world_pays_what_is_expected(graded):
    world = ClusterWorld(seed=0, graded=graded)
    for expected in world.draw(Domain.SOURCE, 1).expected[0].tolist():
        assert world.reward(expected, 0, "a") == expected


def test_rewards_of_a_linear_world_have_their_expectation():
    rewards = [LinearWorld(seed=0).reward(0.3, 0, i) for i in range(20_000)]
    assert set(rewards) == {0.0, 1.0}
    assert np.mean(rewards) == pytest.approx(0.3, abs=0.015)
    assert LinearWorld(seed=0).reward(0.3, 0, 5) == rewards[5]


def test_a_gap_leaves_no_overlap_and_a_permutation_changes_what_pays():
    plain = ClusterWorld(seed=3, shift=0.0)
    moved = ClusterWorld(seed=3, shift=0.0, gap=5.0, permuted=True)
    first, second = plain.draw(Domain.TARGET, 200, "a"), moved.draw(Domain.TARGET, 200, "a")
    steps = second.contexts - first.contexts
    assert np.linalg.norm(steps, axis=1) == pytest.approx(np.full(200, 5.0), abs=1e-4)
    assert (second.best_arms == (first.best_arms + 1) % plain.arm_count).all()
    source = moved.draw(Domain.SOURCE, 200, "a")
    np.testing.assert_array_equal(source.contexts, plain.draw(Domain.SOURCE, 200, "a").contexts)
    assert (source.best_arms == plain.draw(Domain.SOURCE, 200, "a").best_arms).all()
