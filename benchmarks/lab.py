"""Plays a learner on a simulated two-domain world, in one process, and counts its regret."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from model.bandit.policy import Policy
from model.config import BanditConfig
from model.learner import Learner
from model.rounds import Domain, Doubles, Floats, RewardedRound
from model.simulate import Draw
from model.transfer.gate import Verdict
from service import THREAD_VARIABLES


class World(Protocol):
    """Draws the rounds of both domains and pays for choices."""

    def draw(self, domain: Domain, count: int, *names: object) -> Draw: ...

    def reward(self, expected: float, seed: int, *names: object) -> float: ...


@dataclass(slots=True)
class Play:
    """What happened: regret of every source round, accuracies at checkpoints, the gate's verdicts."""

    learner: Learner
    regret: Doubles
    verdicts: list[Verdict] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    source_accuracy: list[float] = field(default_factory=list)
    target_accuracy: list[float] = field(default_factory=list)


def play(
    world: World,
    config: BanditConfig,
    rounds: int,
    seed: int,
    checkpoint_every: int = 0,
    on_round: Callable[[], None] = lambda: None,
    has_target: bool = True,
) -> Play:
    """`rounds` source rounds with rewards beside as many target contexts without (or none at all).

    The policy is refreshed after each reward, as in the paper; accuracies are measured at every
    checkpoint and at the end on contexts that are not played.
    """
    learner = Learner(config, seed)
    source, target = (world.draw(domain, rounds, "play", seed) for domain in Domain)
    tests = {domain: world.draw(domain, 2000, "test") for domain in Domain}
    played = Play(learner, np.zeros(rounds))
    for t in range(rounds):
        if has_target:
            learner.observe_context(t, Domain.TARGET, _first(target.contexts[t], config))
        played.regret[t] = _play_round(learner, world, source, t)
        if outcome := learner.train():
            played.verdicts.append(outcome.verdict)
        if t + 1 == rounds or (checkpoint_every and (t + 1) % checkpoint_every == 0):
            _measure(played, tests, t + 1)
        on_round()
    return played


def _play_round(learner: Learner, world: World, source: Draw, t: int) -> float:
    chosen = learner.policy().select_many(source.contexts[t : t + 1], Domain.SOURCE, [str(t)])
    arm = int(chosen.arms[0])
    context = source.contexts[t, arm] if learner.config.is_joint else source.contexts[t]
    learner.observe_context(t, Domain.SOURCE, context)
    reward = world.reward(float(source.expected[t, arm]), learner.seed, t)
    propensity = float(chosen.probabilities[0, arm])
    learner.observe(RewardedRound(t, Domain.SOURCE, context, arm, reward, propensity))
    return float(source.expected[t].max() - source.expected[t, arm])


def _first(contexts: Floats, config: BanditConfig) -> Floats:
    """One context of a round: the shared one, or that of its first arm."""
    return np.asarray(contexts[0] if config.is_joint else contexts)


def _measure(played: Play, tests: dict[Domain, Draw], t: int) -> None:
    policy = played.learner.policy()
    played.checkpoints.append(t)
    played.source_accuracy.append(accuracy(policy, tests[Domain.SOURCE], Domain.SOURCE))
    played.target_accuracy.append(accuracy(policy, tests[Domain.TARGET], Domain.TARGET))


def accuracy(policy: Policy, draw: Draw, domain: Domain) -> float:
    """Share of rounds in which the greedy arm (highest mean) is a best one."""
    greedy = policy.score_many(draw.contexts, domain).mean.argmax(axis=1)
    return float((draw.regret(greedy) < 1e-9).mean())


def use_threads(count: int) -> None:
    """Set the threads of torch here, and of all numerics in processes started from now on."""
    torch.set_num_threads(count)
    for name in THREAD_VARIABLES:
        os.environ[name] = str(count)


def use_one_thread() -> None:
    """Small networks are fastest on one thread, and results then do not depend on the machine's cores."""
    use_threads(1)
