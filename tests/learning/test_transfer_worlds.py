"""What the default method must reach on simulated worlds: transfer where it helps, no harm where it cannot.

One short run of each system here; more worlds, seeds and rounds are marked slow. The bounds are the same.
"""

import numpy as np
import pytest

from benchmarks.lab import play, use_one_thread
from benchmarks.worlds import target_accuracies, target_accuracy
from model.config import ContextKind, system_config
from model.simulate import ClusterWorld
from service import DEFAULT_METHOD
from tests.support.worlds import LinearWorld

SEEDS = range(5)
METHODS = [DEFAULT_METHOD, "nlinucb"]
LEAST_GAINS = [("shifted", 0.15), ("no shift", -0.02), ("only the class balance differs", -0.02)]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    use_one_thread()


def check_gain(world: str, least_gain: float, rounds: int, seeds: int) -> None:
    default, nlinucb = target_accuracies(world, METHODS, rounds, seeds)
    assert default.mean() - nlinucb.mean() >= least_gain, (default, nlinucb)


def test_the_default_gains_under_shift():
    world, least_gain = LEAST_GAINS[0]
    default, nlinucb = (target_accuracy((world, each, 768, 0)) for each in METHODS)
    assert default - nlinucb >= least_gain, (default, nlinucb)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "least_gain"), LEAST_GAINS)
def test_the_default_gains_under_shift_and_harms_nowhere(world, least_gain):
    check_gain(world, least_gain, 1536, 2)


@pytest.mark.study
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("world", "least_gain"), LEAST_GAINS)
def test_so_it_is_over_five_seeds(world, least_gain):
    check_gain(world, least_gain, 3072, len(SEEDS))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ContextKind)
def test_regret_of_linucb_grows_like_the_square_root_in_a_linear_world(kind):
    rounds, regrets = 8192, []
    for seed in SEEDS:
        world = LinearWorld(seed=seed, kind=kind)
        # The widths must cover the noise of 0/1 rewards for the guarantee to hold; no ε floor,
        # whose cost is linear by design.
        config = system_config("linucb", alpha=1.0, epsilon=0.0, **world.config_values())
        regrets.append(play(world, config, rounds, seed).regret.cumsum())
    curve = np.mean(regrets, axis=0)
    times = np.geomspace(1024, rounds, 8).astype(int)
    exponent = np.polyfit(np.log(times), np.log(curve[times - 1]), 1)[0]
    assert exponent <= 0.65


@pytest.mark.slow
def test_source_is_learned_without_any_target_context():
    world = ClusterWorld(seed=3)
    config = system_config("daband", **world.config_values())
    played = play(world, config, 1536, 3, has_target=False)
    assert played.source_accuracy[-1] > 0.9
    assert played.learner.transfer() is None
