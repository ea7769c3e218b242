"""Simulated worlds with and without a change of class balance, as transfer tasks."""

import numpy as np

from benchmarks.datasets.task import TransferTask
from model.rounds import Domain, Floats
from model.simulate import ClusterWorld, Draw

UNBALANCED = (0.5, 0.25, 0.15, 0.07, 0.03)
_KINDS: dict[str, tuple[float, tuple[float, ...] | None]] = {
    "shifted": (1.0, None),
    "unbalanced": (0.0, UNBALANCED),
    "shifted-unbalanced": (1.0, UNBALANCED),
}
_SEEDS = (0, 1)
_WORLDS = {
    f"simulated:{kind}-{seed}": ClusterWorld(seed=seed, shift=shift, target_prior=shares)
    for kind, (shift, shares) in _KINDS.items()
    for seed in _SEEDS
}
NAMES = tuple(_WORLDS)
ROUNDS, TESTS = 3072, 2000


def simulated_task(name: str) -> TransferTask:
    """3,072 rounds of each domain and 2,000 others of each for the report."""
    world = _WORLDS[name]
    source, target = (world.draw(domain, ROUNDS, "task") for domain in Domain)
    source_test, test = (world.draw(domain, TESTS, "test") for domain in Domain)
    return TransferTask(
        name=name,
        arms=tuple(f"arm {arm}" for arm in range(world.arm_count)),
        exclusive_rewards=True,
        **_part("source", source),
        **_part("target", target),
        **_part("test", test),
        **_part("source_test", source_test),
    )


def _part(part: str, draw: Draw) -> dict[str, Floats]:
    return {f"{part}_contexts": draw.contexts, f"{part}_rewards": draw.expected.astype(np.float32)}
