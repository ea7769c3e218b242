"""What the systems must reach on simulated worlds: transfer where it helps, no harm where it cannot."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from benchmarks.lab import play, use_one_thread
from model.config import ContextKind
from model.simulate import ClusterWorld, LinearWorld
from model.systems import system_config

SEEDS = range(5)
ROUNDS = 3072
UNBALANCED = (0.5, 0.25, 0.15, 0.07, 0.03)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    use_one_thread()


def _target_accuracy(job: tuple[str, float, tuple[float, ...] | None, int]) -> float:
    use_one_thread()
    method, shift, shares, seed = job
    world = ClusterWorld(seed=seed, shift=shift, target_shares=shares)
    config = system_config(method, **world.config_values())
    return play(world, config, ROUNDS, seed).target_accuracy[-1]


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.mark.parametrize(
    ("shift", "shares", "least_gain"),
    [
        pytest.param(1.0, None, 0.15, id="shifted"),
        pytest.param(0.0, None, -0.02, id="no shift"),
        pytest.param(0.0, UNBALANCED, -0.02, id="only the class balance differs"),
    ],
)
def test_daband_gains_under_shift_and_harms_nowhere(pool, shift, shares, least_gain):
    jobs = [(method, shift, shares, seed) for method in ("daband", "nlinucb") for seed in SEEDS]
    daband, nlinucb = np.array(list(pool.map(_target_accuracy, jobs))).reshape(2, -1)
    assert daband.mean() - nlinucb.mean() >= least_gain, (daband, nlinucb)


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


def test_source_is_learned_without_any_target_context():
    world = ClusterWorld(seed=3)
    config = system_config("daband", **world.config_values())
    played = play(world, config, 1536, 3, has_target=False)
    assert played.source_accuracy[-1] > 0.9
    assert played.learner.transfer() is None
