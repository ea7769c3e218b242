"""One run of the paper's loop: source rounds with rewards beside target contexts without."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from benchmarks.datasets.task import Contexts, TransferTask, as_floats
from benchmarks.paper.quick_ucb import QuickUCB
from model.config import BanditConfig
from model.gate import Verdict
from model.learner import Learner
from model.randomness import generator
from model.rounds import Domain, Doubles, Floats, Integers, Round

_AT_ONCE = 2048  # test contexts encoded at once


@dataclass(slots=True)
class Run:
    """What one run of a method on a task gave."""

    learner: Learner
    regret: Doubles
    training_seconds: float = 0.0
    seconds: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)


def play(
    task: TransferTask,
    config: BanditConfig,
    seed: int,
    rounds: int,
    device: str = "cpu",
    on_episode: Callable[[Run], None] = lambda run: None,
) -> Run:
    """`rounds` source rounds; before each one target context arrives without its reward."""
    started = time.perf_counter()
    run = Run(Learner(config, seed, device), np.zeros(rounds))
    source = visits(seed, "source", len(task.source_contexts), rounds)
    target = visits(seed, "target", len(task.target_contexts), rounds)
    for first in range(0, rounds, config.episode_length):
        now = slice(first, first + config.episode_length)
        for reference, context in enumerate(as_floats(task.target_contexts[target[now]]), first):
            run.learner.observe_context(reference, Domain.TARGET, context)
        contexts = as_floats(task.source_contexts[source[now]])
        run.regret[now] = play_episode(
            run, contexts, task.source_rewards[source[now]], Domain.SOURCE, first
        )
        on_episode(run)
    run.seconds = time.perf_counter() - started
    return run


def play_episode(
    run: Run, contexts: Floats, rewards: Floats, domain: Domain, first: int
) -> Doubles:
    """The rounds until the next encoder update, and the update; gives the regret of each."""
    learner = run.learner
    tensor = torch.from_numpy(contexts).to(learner.device)
    latents = learner.networks.encode(tensor, domain).cpu().numpy()
    rule = QuickUCB(learner.statistics, learner.config.alpha)
    regret = np.zeros(len(contexts))
    for t, (context, latent, paid) in enumerate(zip(contexts, latents, rewards, strict=True)):
        arm = rule.arm(latent)
        reward = float(paid[arm])
        regret[t] = float(paid.max()) - reward
        rule.fold(latent, arm, reward)
        learner.observe_context(first + t, domain, context)
        learner.observe(Round(first + t, domain, context, arm, reward), latent[None])
    started = time.perf_counter()
    if outcome := learner.train():
        run.verdicts.append(outcome.verdict)
    run.training_seconds += time.perf_counter() - started
    return regret


def visits(seed: int, name: str, available: int, rounds: int) -> Integers:
    """The order in which samples are shown: each once, then all of them again."""
    rng = generator(seed, "order", name)
    passes = [rng.permutation(available) for _ in range(-(-rounds // available))]
    return np.concatenate(passes)[:rounds]


def greedy_arms(learner: Learner, contexts: Contexts, domain: Domain) -> Integers:
    """The arm with the highest mean for each context."""
    return np.concatenate(list(_greedy(learner, contexts, domain)))


def _greedy(learner: Learner, contexts: Contexts, domain: Domain) -> Iterator[Integers]:
    theta = learner.statistics.factors().theta
    for first in range(0, len(contexts), _AT_ONCE):
        part = torch.from_numpy(as_floats(contexts[first : first + _AT_ONCE]))
        latents = learner.networks.encode(part.to(learner.device), domain)
        yield (latents.double().cpu().numpy() @ theta.T).argmax(axis=1)
