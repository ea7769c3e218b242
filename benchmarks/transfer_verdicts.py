"""Verdicts and transfer confidence over many simulated runs, as a Markdown table.

`python -m benchmarks.transfer_verdicts [--runs 40] [--rounds 1024] [--worlds "no shift" …]`
"""

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from benchmarks.lab import play, use_one_thread
from model.config import system_config
from model.rounds import Booleans, Domain, Doubles
from model.simulate import ClusterWorld
from model.transfer.verdict import Word
from service import DEFAULT_METHOD

WORLDS: dict[str, dict[str, Any]] = {
    "no shift": {"shift": 0.0},
    "moderate shift": {"shift": 0.5},
    "strong shift": {"shift": 1.0},
    "labels permuted, disjoint supports": {"shift": 0.0, "gap": 5.0, "permuted": True},
    "labels permuted, strong shift": {"shift": 1.0, "permuted": True},
    "disjoint supports": {"shift": 0.0, "gap": 5.0},
    "labels permuted, no shift (cannot be seen)": {"shift": 0.0, "permuted": True},
}
TESTED = 2000  # target contexts that were not played
Job = tuple[str, str, int, int]


@dataclass(frozen=True, slots=True)
class Run:
    """How one run ended on target contexts that were not played."""

    word: Word
    accuracy: float
    mean_confidence: float
    auc: float
    kept_accuracy: float


def judged_run(job: Job) -> Run:
    """Play (world, method, rounds, seed), then judge and rate."""
    use_one_thread()
    name, method, rounds, seed = job
    world = ClusterWorld(seed=seed, **WORLDS[name])
    played = play(world, system_config(method, **world.config_values()), rounds, seed)
    judging = played.learner.judging()
    assert judging is not None
    draw = world.draw(Domain.TARGET, TESTED, "test")
    selection = played.learner.policy().select_target(draw.contexts)
    is_right = draw.regret(selection.arms) < 1e-9
    kept = selection.confidence > np.quantile(selection.confidence, 0.2)
    return Run(
        word=judging.run().verdict.word,
        accuracy=float(is_right.mean()),
        mean_confidence=float(selection.confidence.mean()),
        auc=area(selection.confidence, is_right),
        kept_accuracy=float(is_right[kept].mean()),
    )


def judged_runs(world: str, runs: int, rounds: int, method: str = DEFAULT_METHOD) -> list[Run]:
    """One run a seed, in as many processes as there are cores."""
    jobs: list[Job] = [(world, method, rounds, seed) for seed in range(runs)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        return list(pool.map(judged_run, jobs))


def area(scores: Doubles, is_right: Booleans) -> float:
    """AUC: how often a right decision is rated higher than a wrong one, ties counted half."""
    right, wrong = scores[is_right], scores[~is_right]
    if not len(right) or not len(wrong):
        return float("nan")
    above = (right[:, None] > wrong).mean() + 0.5 * (right[:, None] == wrong).mean()
    return float(above)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each world."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=1024)
    parser.add_argument("--method", default=DEFAULT_METHOD)
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=WORLDS)
    options = parser.parse_args(arguments)
    titles = (
        "world",
        *(word.value for word in Word),
        "accuracy",
        "mean confidence",
        "AUC mean (least)",
        "gain by abstaining on 20 %, mean (least)",
    )
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    for world in options.worlds:
        found = judged_runs(world, options.runs, options.rounds, options.method)
        words = [sum(run.word is word for run in found) for word in Word]
        aucs = np.array([run.auc for run in found])
        gains = np.array([run.kept_accuracy - run.accuracy for run in found])
        cells = (
            world,
            *map(str, words),
            f"{np.mean([run.accuracy for run in found]):.3f}",
            f"{np.mean([run.mean_confidence for run in found]):.3f}",
            f"{np.nanmean(aucs):.3f} ({np.nanmin(aucs):.3f})",
            f"{gains.mean():+.3f} ({gains.min():+.3f})",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
