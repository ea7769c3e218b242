"""Does imported history train like the same rewards sent one by one? Target accuracy on simulated worlds.

`python -m benchmarks.catching_up [--seeds 3] [--rewards 2400] [--device cpu] [--processes 2]`

The rewards are a trial's: arms were drawn evenly. Each way of training sees the same contexts, arms and
rewards. `one by one` is the reference: an update follows every H rewards at once. The others fold all
rewards while the first update runs, as an import does.
"""

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np

from benchmarks.lab import accuracy, use_one_thread
from benchmarks.worlds import WORLDS
from model.config import system_config
from model.learner import Learner
from model.rounds import Domain, RewardedRound
from model.simulate import ClusterWorld, Draw
from model.training.schedule import ContextCounts

METHOD = "daband"
PLAYED = ("shifted", "shifted, graded rewards", "shifted, and the class balance differs")


@dataclass(frozen=True, slots=True)
class Trial:
    """Past rounds of a world, whose arms were drawn evenly, and as many target contexts."""

    world: ClusterWorld
    source: Draw
    target: Draw
    rounds: tuple[RewardedRound, ...]

    @classmethod
    def drawn(cls, world: ClusterWorld, count: int, seed: int) -> "Trial":
        """So many rounds."""
        source, target = (world.draw(domain, count, "trial", seed) for domain in Domain)
        arms = np.random.default_rng(seed).integers(world.arm_count, size=count)
        rounds = tuple(
            RewardedRound(
                t,
                Domain.SOURCE,
                source.contexts[t],
                int(arms[t]),
                float(source.expected[t, arms[t]]),
                1 / world.arm_count,
            )
            for t in range(count)
        )
        return cls(world, source, target, rounds)

    def learner(self, seed: int, device: str = "cpu", **changes: object) -> Learner:
        """A learner that has seen nothing of it."""
        return Learner(system_config(METHOD, **self.world.config_values(), **changes), seed, device)

    def send(self, learner: Learner, *, has_target: bool = True) -> None:
        """One by one, with an update after each episode before the next reward comes."""
        self._fold(learner, has_target=has_target, trains=True)

    def import_into(self, learner: Learner, *, has_target: bool = True) -> None:
        """All at once; the first update is still under way at the end."""
        self._fold(learner, has_target=has_target, trains=False)

    def upload_target(self, learner: Learner) -> None:
        """The target contexts at once."""
        learner.observe_contexts(range(len(self.rounds)), Domain.TARGET, self.target.contexts)

    def target_accuracy(self, learner: Learner) -> float:
        """On held-out contexts."""
        tests = self.world.draw(Domain.TARGET, 2000, "test")
        return accuracy(learner.policy(), tests, Domain.TARGET)

    def _fold(self, learner: Learner, *, has_target: bool, trains: bool) -> None:
        for t, round_ in enumerate(self.rounds):
            if has_target:
                learner.observe_context(t, Domain.TARGET, self.target.contexts[t])
            learner.observe_context(t, Domain.SOURCE, round_.context)
            learner.observe(round_)
            if trains:
                learner.train()


def train_all_due(learner: Learner, seen: ContextCounts | None = None) -> int:
    """Train the pending update and all that the rule lets follow; how many there were.

    `seen`: what had come when the last update began.
    """
    count = 0
    while True:
        if learner.pending is None:
            if (update := learner.next_update(seen)) is None:
                return count
            learner.begin_update(update.covers)
        assert learner.pending is not None
        seen = learner.pending.data.contexts
        learner.train()
        count += 1


def train_larger(learner: Learner, most: int) -> int:
    """The same number of steps in fewer updates, each of at most so many episodes; how many."""
    learner.train()
    count = 1
    while due := learner.progress.due_updates:
        episodes = min(most, due)
        learner.episode += episodes - 1
        learner.begin_update(covers=episodes)
        assert learner.pending is not None
        steps = episodes * learner.config.steps_per_episode
        config = learner.config.changed(steps_per_episode=steps)
        learner.conclude(replace(learner.pending, config=config).run())
        count += 1
    return count


Way = Callable[[Trial, Learner], int]


def _one_by_one(trial: Trial, learner: Learner) -> int:
    trial.send(learner)
    return learner.episode


def _imported(trial: Trial, learner: Learner) -> int:
    trial.import_into(learner)
    return train_all_due(learner)


def _larger(most: int) -> Way:
    def way(trial: Trial, learner: Learner) -> int:
        trial.import_into(learner)
        return train_larger(learner, most)

    return way


def _first_only(trial: Trial, learner: Learner) -> int:
    trial.import_into(learner)
    learner.train()
    return 1


def _without_target(trial: Trial, learner: Learner) -> int:
    trial.import_into(learner, has_target=False)
    return train_all_due(learner)


def _target_last(trial: Trial, learner: Learner) -> int:
    count, seen = _without_target(trial, learner), learner.context_counts
    trial.upload_target(learner)
    return count + train_all_due(learner, seen)


WAYS: dict[str, Way] = {
    "one by one": _one_by_one,
    "imported, one update for each H": _imported,
    "imported, updates of 8 H": _larger(8),
    "imported, one for all": _larger(10**6),
    "imported, the first update alone": _first_only,
    "imported, no target contexts": _without_target,
    "imported, target contexts last": _target_last,
}
Job = tuple[str, str, int, int, str]


def measured(job: Job) -> tuple[float, int]:
    """Target accuracy and number of updates of (way, world, rewards, seed, device)."""
    use_one_thread()
    way, name, rewards, seed, device = job
    trial = Trial.drawn(ClusterWorld(seed=seed, **WORLDS[name]), rewards, seed)  # type: ignore[arg-type]
    learner = trial.learner(seed, device)
    updates = WAYS[way](trial, learner)
    return trial.target_accuracy(learner), updates


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the mean over seeds of each way, a world a column."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rewards", type=int, default=2400)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    options = parser.parse_args(arguments)
    jobs: list[Job] = [
        (way, world, options.rewards, seed, options.device)
        for way in options.ways
        for world in PLAYED
        for seed in range(options.seeds)
    ]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        found = list(pool.map(measured, jobs))
    shape = (len(options.ways), len(PLAYED), options.seeds)
    accuracies = np.array([each[0] for each in found]).reshape(shape)
    updates = np.array([each[1] for each in found]).reshape(shape)
    print(f"| way | updates | {' | '.join(PLAYED)} |")
    print("|---" * (len(PLAYED) + 2) + "|")
    for way, row, counts in zip(options.ways, accuracies, updates, strict=True):
        cells = (f"{mean:.3f}" for mean in row.mean(axis=1))
        print(f"| {way} | {counts.max()} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
