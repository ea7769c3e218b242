"""A learner replayed on a log earns what it earns when it lives for itself."""

import numpy as np
import pytest

from model.config import system_config
from model.learner import Learner
from model.ope.rejection import RejectionReplay
from model.rounds import Domain, RewardedRound
from tests.support.small_world import CONTEXTS, SIZE, SmallWorld

WORLD = SmallWorld(seed=2, arm_count=3, is_binary=False)
LIVED = 40
RUNS = 60


def learner(seed: int) -> Learner:
    config = system_config(
        "linucb", arm_count=3, context_shape=(SIZE,), epsilon=0.1, alpha=0.4, ridge=0.5
    )
    return Learner(config, seed)


def lived(seed: int) -> float:
    """The mean reward of the learner's own first rounds."""
    rng = np.random.default_rng((seed, 1))
    own, total = learner(seed), 0.0
    for number in range(LIVED):
        seen = int(rng.integers(CONTEXTS))
        context = WORLD.contexts[seen]
        key = rng.integers(1 << 62, size=1, dtype=np.uint64)
        arm = int(own.policy().select_many(context[None], Domain.SOURCE, key).arms[0])
        reward = float(WORLD.rewards(WORLD.expected[seen : seen + 1, arm], rng)[0])
        own.observe(RewardedRound(number, Domain.SOURCE, context, arm, reward))
        total += reward
    return total / LIVED


def replayed(seed: int, is_uniform: bool) -> float:
    """The same of the first rounds that are kept of a log."""
    rng = np.random.default_rng((seed, 2))
    if is_uniform:
        rounds, _ = WORLD.log(np.full((CONTEXTS, 3), 1 / 3), 250, rng)
    else:
        rounds, _ = WORLD.adaptive_log(500, rng, epsilon=0.6)
    replay = RejectionReplay(learner(seed), refresh=1)
    rewards: list[float] = []
    for part in rounds.parts(50):
        _, weights = replay.play(part)
        rewards += part.rewards[weights > 0].tolist()
        if len(rewards) >= LIVED:
            return float(np.mean(rewards[:LIVED]))
    raise AssertionError("the log was too short")


@pytest.mark.slow
@pytest.mark.parametrize(
    "is_uniform",
    [True, False],
    ids=["uniform log", "learner's log"],
)
def test_replay_and_life_agree(is_uniform: bool):
    own = np.array([lived(seed) for seed in range(RUNS)])
    again = np.array([replayed(seed, is_uniform) for seed in range(RUNS)])
    error = np.sqrt(own.var(ddof=1) / RUNS + again.var(ddof=1) / RUNS)
    assert abs(own.mean() - again.mean()) < 3 * error
    # The learner does learn, so that agreeing means something.
    assert own.mean() > WORLD.expected.mean() + 3 * error
