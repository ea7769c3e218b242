"""Continued training: the target opens for rewards, and the head start shows as less regret."""

import time

import numpy as np

from benchmarks.datasets.task import TransferTask, as_floats
from benchmarks.paper.playing import (
    OnRounds,
    Run,
    ignore,
    new_run,
    play_stride,
    sampled_rows,
    strides,
)
from model.config import BanditConfig
from model.rounds import Domain, Doubles

CURVE_POINTS = 100


def play_on(
    run: Run, task: TransferTask, seed: int, rounds: int, on_rounds: OnRounds = ignore
) -> Doubles:
    """`rounds` target rounds with rewards after the zero-shot phase; the regret of each."""
    run.learner.open_target()
    return _play(run, task, seed, rounds, Domain.TARGET, on_rounds)


def play_from_scratch(
    task: TransferTask,
    config: BanditConfig,
    seed: int,
    rounds: int,
    device: str = "cpu",
    on_rounds: OnRounds = ignore,
) -> tuple[Run, Doubles]:
    """The same target rounds for a learner to which the target is the only domain there is."""
    started = time.perf_counter()
    run = new_run(config, seed, device)
    regret = _play(run, task, seed, rounds, Domain.SOURCE, on_rounds)
    run.seconds = time.perf_counter() - started
    return run, regret


def _play(
    run: Run, task: TransferTask, seed: int, rounds: int, domain: Domain, on_rounds: OnRounds
) -> Doubles:
    begun = len(run.regret)
    rows = sampled_rows(seed, "continued", len(task.target_contexts), rounds)
    for now in strides(run.learner.config, rounds):
        contexts = as_floats(task.target_contexts[rows[now]])
        play_stride(run, contexts, task.target_rewards[rows[now]], domain)
        on_rounds(len(contexts))
    return run.regret[begun:]


def thinned_curve(regret: Doubles) -> dict[str, list[float]]:
    """Cumulative regret after some of the rounds, evenly spaced, the last one always."""
    ends = np.unique(
        np.linspace(0, len(regret), min(CURVE_POINTS, len(regret)) + 1).round().astype(int)
    )
    after = ends[1:]
    return {"rounds": after.tolist(), "regret": np.cumsum(regret)[after - 1].tolist()}
