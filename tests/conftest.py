"""Fixtures: one thread, deterministic torch, small configurations and learners."""

import pytest
import torch

from model.config import BanditConfig
from model.learner import Learner, TrainingJob
from model.simulate import ClusterWorld
from service.ops.process_tuning import freeze_gc
from tests.support.builders import make_rounds, play, play_episode, small_config, teach
from tests.support.worlds import world_config

pytest_plugins = ["pytester", "tests.support.fixtures", "tests.support.measuring"]


def pytest_collection_finish() -> None:
    """What was imported stays: to look through it for garbage again and again is a tenth of the time."""
    freeze_gc()


@pytest.fixture(scope="session", autouse=True)
def _deterministic_torch() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)


@pytest.fixture
def config() -> BanditConfig:
    return small_config()


@pytest.fixture
def learner(config: BanditConfig) -> Learner:
    return Learner(config, seed=7)


@pytest.fixture
def taught() -> Learner:
    """A learner with all loss terms on, after two encoder updates and half an episode more."""
    learner = Learner(small_config(divergence_weight=1.0, regression_weight=0.1), seed=7)
    teach(learner, make_rounds(learner.config, 40))
    return learner


@pytest.fixture(scope="session")
def world() -> ClusterWorld:
    """Three separable classes without any shift."""
    return ClusterWorld(seed=1, arm_count=3, size=8, shift=0.0)


@pytest.fixture(scope="session")
def good_learner(world: ClusterWorld) -> Learner:
    """A learner that knows the world well, with its next encoder update pending; do not change it."""
    config = world_config(
        world,
        latent_size=8,
        hidden_sizes=(32,),
        steps_per_episode=32,
        batch_size=32,
        learning_rate=1e-2,
    )
    learner = Learner(config, seed=1)
    play(learner, world, 10)
    play_episode(learner, world, 10)
    return learner


@pytest.fixture
def good_job(good_learner: Learner) -> TrainingJob:
    """The pending update of the good learner (frozen: replace parts of it to break it)."""
    assert good_learner.pending is not None
    return good_learner.pending
