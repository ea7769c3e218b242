"""Zero-shot target accuracy of the systems on simulated worlds, as a Markdown table.

`python -m benchmarks.worlds [--seeds 5] [--rounds 3072] [--methods nlinucb daband …]`
"""

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.datasets.simulated import UNBALANCED
from benchmarks.lab import play, use_one_thread
from model.config import SYSTEMS, system_config
from model.rounds import Doubles
from model.simulate import ClusterWorld

WORLDS: dict[str, dict[str, object]] = {
    "shifted": {},
    "no shift": {"shift": 0.0},
    "only the class balance differs": {"shift": 0.0, "target_prior": UNBALANCED},
    "shifted, and the class balance differs": {"target_prior": UNBALANCED},
    "shifted, graded rewards": {"graded": True},
}
Job = tuple[str, str, int, int]


def target_accuracy(job: Job) -> float:
    """Accuracy on the target after some source rewards: (world, method, rounds, seed)."""
    use_one_thread()
    name, method, rounds, seed = job
    world = ClusterWorld(seed=seed, **WORLDS[name])  # type: ignore[arg-type]
    config = system_config(method, **world.config_values())
    return play(world, config, rounds, seed).target_accuracy[-1]


def target_accuracies(world: str, methods: Sequence[str], rounds: int, seeds: int) -> Doubles:
    """Accuracies (methods, seeds), computed in as many processes as there are cores."""
    jobs: list[Job] = [(world, method, rounds, seed) for method in methods for seed in range(seeds)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        return np.array(list(pool.map(target_accuracy, jobs))).reshape(len(methods), seeds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print mean ± standard deviation, a world a row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3072)
    parser.add_argument("--methods", nargs="+", default=["nlinucb", "daband"], choices=SYSTEMS)
    options = parser.parse_args(arguments)
    print(f"| world | {' | '.join(f'`{method}`' for method in options.methods)} |")
    print("|---" * (len(options.methods) + 1) + "|")
    for world in WORLDS:
        found = target_accuracies(world, options.methods, options.rounds, options.seeds)
        cells = (f"{row.mean():.3f} ± {row.std():.3f}" for row in found)
        print(f"| {world} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
