"""Whether raw columns cost a linear bandit anything: warfarin in years, centimetres and kilograms.

`DABAND_DATA=FOLDER python -m benchmarks.scales [--rounds 2000] [--seeds 10]`: target accuracy and mean source regret
of `linucb` on raw columns and on columns that were standardised by hand, of the same without a scale
(`encoder: identity`), and of MABWiser's LinUCB behind scikit-learn's StandardScaler.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from mabwiser.mab import MAB, LearningPolicy
from sklearn.preprocessing import StandardScaler

from benchmarks.datasets.registry import load
from benchmarks.datasets.task import TransferTask
from benchmarks.lab import use_one_thread
from benchmarks.paper.playing import play, sampled_rows
from model.config import system_config
from model.rounds import Domain, Doubles, Floats

TASKS = (
    "warfarin:site3-site1",
    "warfarin:site1-site7",
    "warfarin:site7-site5",
    "warfarin:white-asian",
)
# Slot, centre and unit of age, height and weight in the loader's contexts.
MEASURES = ((0, 6.0, 1.5), (2, 168.0, 10.0), (4, 78.0, 20.0))
BATCH, ALPHA = 64, 0.05


def raw(contexts: Any) -> Floats:
    """Contexts as they were measured."""
    found: Floats = np.array(contexts)
    for slot, centre, unit in MEASURES:
        found[:, slot] = found[:, slot] * unit + centre
    return found


def raw_task(task: TransferTask) -> TransferTask:
    """The same task in raw columns."""
    return replace(
        task,
        source_contexts=raw(task.source_contexts),
        target_contexts=raw(task.target_contexts),
        test_contexts=raw(task.test_contexts),
    )


def ours(task: TransferTask, seed: int, rounds: int, **changes: Any) -> tuple[float, float]:
    """Target accuracy and mean source regret of our `linucb`."""
    run = play(task, system_config("linucb", **task.config_values(), **changes), seed, rounds)
    contexts = np.asarray(task.test_contexts, dtype=np.float32)
    greedy = run.learner.policy().score_many(contexts, Domain.TARGET).mean.argmax(axis=1)
    return _paid(task.test_rewards, greedy), float(run.regret.mean())


def mabwiser(task: TransferTask, seed: int, rounds: int) -> tuple[float, float]:
    """The same of MABWiser, 64 rounds at a time, on contexts that are all standardised."""
    scaler = StandardScaler().fit(np.concatenate([task.source_contexts, task.target_contexts]))
    seen = scaler.transform(task.source_contexts)
    rows = sampled_rows(seed, "source", len(seen), rounds)
    bandit = MAB(list(range(len(task.arms))), LearningPolicy.LinUCB(alpha=ALPHA, l2_lambda=1.0))
    paid: list[float] = []
    for start in range(0, rounds, BATCH):
        now = rows[start : start + BATCH]
        arms = np.arange(len(now)) % len(task.arms)
        if start:
            arms = np.asarray(bandit.predict(seen[now])).reshape(-1)
        rewards = task.source_rewards[now, arms].astype(np.float64)
        (bandit.partial_fit if start else bandit.fit)(arms, rewards, seen[now])
        paid += rewards.tolist()
    chosen = np.asarray(bandit.predict(scaler.transform(task.test_contexts)))
    best = task.source_rewards[rows].max(axis=1).mean()
    return _paid(task.test_rewards, chosen), float(best - np.mean(paid))


def _paid(rewards: Floats, arms: Any) -> float:
    return float(rewards[np.arange(len(rewards)), arms].mean())


def measured(name: str, seeds: int, rounds: int) -> dict[str, Doubles]:
    """Mean accuracy and regret of each player on one task."""
    task = load(name)
    as_raw = raw_task(task)
    plain = {"encoder": "identity"}
    players: dict[str, Callable[[int], tuple[float, float]]] = {
        "linucb, raw": lambda seed: ours(as_raw, seed, rounds),
        "linucb, standardised": lambda seed: ours(task, seed, rounds),
        "identity, raw": lambda seed: ours(as_raw, seed, rounds, **plain),
        "identity, standardised": lambda seed: ours(task, seed, rounds, **plain),
        "MABWiser, StandardScaler": lambda seed: mabwiser(as_raw, seed, rounds),
    }
    return {
        player: np.mean([run(seed) for seed in range(seeds)], axis=0)
        for player, run in players.items()
    }


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    use_one_thread()
    print("| task | player | target accuracy | source regret |\n|---|---|---|---|")
    for name in TASKS:
        for player, (accuracy, regret) in measured(name, given.seeds, given.rounds).items():
            print(f"| `{name}` | {player} | {accuracy:.3f} | {regret:.3f} |", flush=True)


if __name__ == "__main__":
    main()
