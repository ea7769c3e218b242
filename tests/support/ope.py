"""Small logs for tests of offline evaluation."""

from typing import Any

import numpy as np

from model.ope.logged import LoggedRounds


def logged_rounds(
    arms: Any, rewards: Any, logger: np.ndarray, contexts: np.ndarray | None = None
) -> LoggedRounds:
    """Rounds whose logger had these probabilities (n, K); one constant context unless given."""
    chosen = np.asarray(arms, dtype=np.int64)
    n = len(chosen)
    numbers = np.arange(n)
    given = np.ones((n, 1), dtype=np.float32) if contexts is None else contexts
    return LoggedRounds(
        contexts=given,
        arms=chosen,
        rewards=np.asarray(rewards, dtype=np.float64),
        propensities=logger[numbers, chosen],
        eligible=logger > 0,
        probabilities=logger,
        versions=np.zeros(n, dtype=np.int64),
        references=numbers,
        keys=np.random.default_rng(0).integers(1 << 62, size=n, dtype=np.uint64),
        segments=np.zeros(n, dtype=np.int64),
        unlabeled=given[:0],
        unlabeled_before=numbers[:0],
    )
