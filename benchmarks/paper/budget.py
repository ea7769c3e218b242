"""How many rounds and seeds: the paper's where it has the data set, ours elsewhere."""

from benchmarks.datasets.registry import IMAGES

EPISODE = 64
CONTINUED_ROUNDS = 1920
SEEDS, PAIR_SEEDS = 5, 3
QUICK_ROUNDS, QUICK_CONTINUED_ROUNDS, QUICK_TESTS = 4 * EPISODE, 2 * EPISODE, 1000
QUICK_CHANGES = (("steps_per_episode", 16),)

_PAPER = {"s2rda49": 100 * EPISODE}
_IMAGES, _SIMULATED, _VECTORS = 300 * EPISODE, 48 * EPISODE, 60 * EPISODE


def default_rounds(dataset: str) -> int:
    """Source rounds of a run; a set with fewer samples is passed through several times."""
    if dataset.startswith("simulated:"):
        return _SIMULATED
    return _PAPER.get(dataset, _IMAGES if dataset in IMAGES else _VECTORS)
