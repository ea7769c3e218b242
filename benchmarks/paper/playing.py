"""One run of the paper's loop: source rounds with rewards, target contexts without."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from benchmarks.datasets.task import TransferTask, as_floats
from benchmarks.paper.quick_ucb import LARGE, QuickUCB, Unfolded
from model.config import BanditConfig
from model.learner import Learner
from model.randomness import generator
from model.rounds import Domain, Doubles, Floats, Integers, RoundBlock
from model.transfer.gate import Verdict

OnRounds = Callable[[int], None]
_STRIDE = 64  # rounds encoded at once where no encoder update falls due
_LONGEST_STRIDE = 1024


def ignore(rounds: int) -> None:
    """Do nothing."""


@dataclass(slots=True)
class Run:
    """A run of a method on a task, and what came of it so far."""

    learner: Learner
    regret: Doubles
    training_seconds: float = 0.0
    seconds: float = 0.0
    verdicts: list[Verdict] = field(default_factory=list)
    _rule: QuickUCB | None = None
    _rule_of: tuple[int, Domain] | None = None

    def rule(self, domain: Domain) -> QuickUCB:
        """The UCB rule of a domain under the present encoder."""
        learner = self.learner
        wanted = learner.encoder_version, domain
        if self._rule is None or self._rule_of != wanted:
            alpha, device = learner.config.alpha, learner.device
            self._rule = QuickUCB(learner.statistics, alpha, device, domain)
            self._rule_of = wanted
        return self._rule


def new_run(config: BanditConfig, seed: int, device: str) -> Run:
    """A learner that has seen nothing."""
    return Run(Learner(config, seed, device), np.zeros(0))


def play(
    task: TransferTask,
    config: BanditConfig,
    seed: int,
    rounds: int,
    device: str = "cpu",
    on_rounds: OnRounds = ignore,
) -> Run:
    """`rounds` source rounds; before each one target context arrives without its reward."""
    started = time.perf_counter()
    run = new_run(config, seed, device)
    is_deferred = _is_deferred(run.learner, rounds)
    if is_deferred:
        size = run.learner.networks.encoder.latent_size
        run.learner.statistics = Unfolded(config.model_count, size, config.ridge)
    source = sampled_rows(seed, "source", len(task.source_contexts), rounds)
    target = sampled_rows(seed, "target", len(task.target_contexts), rounds)
    for now in strides(config, rounds):
        arrived = as_floats(task.target_contexts[target[now]])
        run.learner.observe_decided(np.arange(now.start, now.stop), Domain.TARGET, arrived)
        contexts = as_floats(task.source_contexts[source[now]])
        play_stride(run, contexts, task.source_rewards[source[now]], Domain.SOURCE)
        on_rounds(len(contexts))
    if is_deferred:
        run.learner.rebuild()
    run.seconds = time.perf_counter() - started
    return run


def strides(config: BanditConfig, rounds: int) -> list[slice]:
    """The rounds that are encoded at once: no encoder update falls within them."""
    length = config.episode_length if config.episode_length <= _LONGEST_STRIDE else _STRIDE
    return [slice(first, min(first + length, rounds)) for first in range(0, rounds, length)]


def play_stride(run: Run, contexts: Floats, rewards: Floats, domain: Domain) -> None:
    """Play rounds one by one under one encoder, then the update if it falls due."""
    learner, rule = run.learner, run.rule(domain)
    tensor = torch.from_numpy(contexts).to(learner.device)
    latents = learner.networks.encode(tensor, domain).cpu().numpy()
    prepared = rule.prepared(latents)
    arms, paid = np.zeros(len(contexts), dtype=np.int64), np.zeros(len(contexts))
    for t, (z, pays) in enumerate(zip(prepared, rewards, strict=True)):
        arms[t] = rule.arm(z)
        paid[t] = pays[arms[t]]
        rule.fold(z, int(arms[t]), float(paid[t]))
    _observe(learner, domain, len(run.regret), contexts, arms, paid, latents)
    regret = rewards.max(axis=1) - paid
    run.regret = np.concatenate([run.regret, regret])
    started = time.perf_counter()
    if outcome := learner.train():
        run.verdicts.append(outcome.verdict)
    run.training_seconds += time.perf_counter() - started


def _observe(
    learner: Learner,
    domain: Domain,
    first: int,
    contexts: Floats,
    arms: Integers,
    rewards: Doubles,
    latents: Floats,
) -> None:
    """Folds rounds that were played one by one into a learner."""
    references = first + np.arange(len(contexts))
    is_target = np.full(len(contexts), domain is Domain.TARGET)
    learner.observe_decided(references, domain, contexts)
    played = RoundBlock(references, is_target, contexts, arms, rewards, np.ones(len(contexts)))
    learner.observe_block(played, latents)


def sampled_rows(seed: int, name: str, available: int, rounds: int) -> Integers:
    """The order in which samples are shown: each once, then all of them again."""
    rng = generator(seed, "order", name)
    passes = [rng.permutation(available) for _ in range(-(-rounds // available))]
    return np.concatenate(passes)[:rounds]


def _is_deferred(learner: Learner, rounds: int) -> bool:
    """Whether A and b are better summed up at the end: no update needs them before."""
    config = learner.config
    is_large = learner.networks.encoder.latent_size > LARGE
    return is_large and rounds < config.episode_length and rounds <= config.rebuild_window
