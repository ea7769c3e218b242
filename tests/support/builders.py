"""Small inputs for tests: configurations, rounds, and learners that have seen something."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from model.bandit.confidence import HeldOut
from model.config import BanditConfig
from model.learner import Learner, Outcome, TrainingJob
from model.rounds import Domain, RewardedRound, RoundBlock
from model.simulate import ClusterWorld
from model.training.rebuild import EncodedRounds
from service.records import Experiment, Phase, Status, utc_now
from tests.support.worlds import World

SMALL: dict[str, Any] = {
    "arm_count": 3,
    "context_shape": (4,),
    "latent_size": 4,
    "hidden_sizes": (8,),
    "component_count": 3,
    "episode_length": 16,
    "steps_per_episode": 4,
    "batch_size": 8,
    "rebuild_window": 48,
    "reservoir_size": 24,
}


def small_config(**changes: Any) -> BanditConfig:
    return BanditConfig.from_mapping({**SMALL, **changes})


def beyond_bounds(config: BanditConfig, **values: Any) -> BanditConfig:
    """The configuration with values that it refuses, which make training diverge."""
    found = config.changed()
    for name, value in values.items():
        object.__setattr__(found, name, value)
    return found


def poisoned(job: TrainingJob, contexts: float = 0.0, rewards: float = 0.0) -> TrainingJob:
    """The job with its first rounds for training replaced by huge values."""
    rounds = job.data.rounds
    rows = np.flatnonzero(~rounds.is_held_out)[:32]
    changed_contexts, changed_rewards = rounds.contexts.clone(), rounds.rewards.copy()
    source = job.data.source.contexts.clone()
    if contexts:
        changed_contexts[torch.from_numpy(rows)], source[:32] = contexts, contexts
    if rewards:
        changed_rewards[rows] = rewards
    data = dataclasses.replace(
        job.data,
        rounds=dataclasses.replace(rounds, contexts=changed_contexts, rewards=changed_rewards),
        source=dataclasses.replace(job.data.source, contexts=source),
    )
    return dataclasses.replace(job, data=data)


def make_rounds(
    config: BanditConfig, count: int, seed: int = 0, domain: Domain = Domain.SOURCE
) -> list[RewardedRound]:
    """Random contexts, arms and rewards of 0 or 1."""
    rng = np.random.default_rng(seed)
    return [
        RewardedRound(
            reference=1000 * seed + number,
            domain=domain,
            context=rng.standard_normal(config.context_shape).astype(np.float32),
            arm=int(rng.integers(config.arm_count)),
            reward=float(rng.integers(2)),
            propensity=0.5,
        )
        for number in range(count)
    ]


def block(rounds: Sequence[RewardedRound]) -> RoundBlock:
    """The rounds as columns."""
    return RoundBlock(
        references=np.array([each.reference for each in rounds]),
        is_target=np.array([each.domain is Domain.TARGET for each in rounds]),
        contexts=np.stack([each.context for each in rounds]),
        arms=np.array([each.arm for each in rounds]),
        rewards=np.array([each.reward for each in rounds]),
        propensities=np.array([each.propensity for each in rounds]),
    )


def teach(learner: Learner, rounds: Iterable[RewardedRound]) -> list[Outcome]:
    """Fold rounds with contexts of both domains, training as soon as it is due."""
    outcomes = []
    for round_ in rounds:
        learner.observe_context(round_.reference, Domain.SOURCE, round_.context)
        learner.observe_context(-1 - round_.reference, Domain.TARGET, 0.5 - round_.context)
        learner.observe(round_)
        if outcome := learner.train():
            outcomes.append(outcome)
    return outcomes


def calibrated_on(learner: Learner) -> HeldOut:
    """What the learner's confidence would be calibrated on now."""
    encoded = EncodedRounds.under(learner.networks, learner.window.batch())
    is_judge = encoded.rounds.is_held_out & ~encoded.rounds.is_target
    return learner._held_out_rounds(encoded, np.flatnonzero(is_judge))


def play_episode(learner: Learner, world: World, number: int) -> float:
    """One episode in the world up to the encoder update, which is left pending; mean regret."""
    count = learner.config.episode_length
    draw, target = (world.draw(domain, count, "episode", number) for domain in Domain)
    ids = [f"{number}-{i}" for i in range(count)]
    selection = learner.policy().select_many(draw.contexts, Domain.SOURCE, ids)
    for i, arm in enumerate(selection.arms.tolist()):
        seen = draw.contexts[i, arm] if learner.config.is_joint else draw.contexts[i]
        unseen = target.contexts[i, 0] if learner.config.is_joint else target.contexts[i]
        reward = world.reward(float(draw.expected[i, arm]), world.seed, number, i)
        reference = number * count + i
        learner.observe_context(reference, Domain.SOURCE, seen)
        learner.observe_context(-1 - reference, Domain.TARGET, unseen)
        propensity = float(selection.probabilities[i, arm])
        learner.observe(RewardedRound(reference, Domain.SOURCE, seen, arm, reward, propensity))
    return float(draw.regret(selection.arms).mean())


def play(learner: Learner, world: World, episodes: int) -> list[float]:
    """Whole episodes with their updates; the mean regret of each."""
    regrets = []
    for number in range(episodes):
        regrets.append(play_episode(learner, world, number))
        learner.train()
    return regrets


def accuracy(learner: Learner, world: ClusterWorld, domain: Domain) -> float:
    """Share of fresh contexts on which the greedy arm is the best one."""
    draw = world.draw(domain, 500, "test")
    scores = learner.policy().score_many(draw.contexts, domain)
    return float((scores.mean.argmax(axis=1) == draw.best_arms).mean())


def stored_experiment(name: str) -> Experiment:
    """An experiment as the database knows it, with an empty log."""
    return Experiment(
        f"id-of-{name}", name, "{}", Phase.ZERO_SHOT, Status.ACTIVE, 0, 1, 0, utc_now()
    )
