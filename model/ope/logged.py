"""Logged rounds as columns, the input of all estimators."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from model.rounds import (
    UNKNOWN_PROPENSITY,
    Booleans,
    Doubles,
    Floats,
    Integers,
    Keys,
)

# The columns with an entry for each round, except the optional `probabilities`.
COLUMNS = (
    *("contexts", "arms", "rewards", "propensities", "eligible"),
    *("versions", "references", "keys", "segments"),
)


class NotIdentifiableError(ValueError):
    """The log does not determine what another policy would have earned."""


@dataclass(frozen=True, slots=True)
class LoggedRounds:
    """n rounds in log order, each with the reward of the arm that was chosen.

    `contexts` is (n, *shape), or (n, K, *shape) for per-arm contexts. `eligible` and `probabilities`
    are (n, K); a log with only the chosen arm's propensity has no `probabilities`. Everything else is
    (n,): `keys` seed draws, `references` point into the log, `segments` say where an arm was shown.
    Rounds with an unknown propensity cannot be weighted.
    `unlabeled` (m, *shape) are target contexts, each seen before the round `unlabeled_before` (m,).
    """

    contexts: Floats
    arms: Integers
    rewards: Doubles
    propensities: Doubles
    eligible: Booleans
    probabilities: Doubles | None
    versions: Integers
    references: Integers
    keys: Keys
    segments: Integers
    unlabeled: Floats
    unlabeled_before: Integers

    def __len__(self) -> int:
        return len(self.arms)

    @property
    def arm_counts(self) -> Integers:
        """How many arms were eligible, (n,)."""
        return np.asarray(self.eligible.sum(axis=1))

    @property
    def logged_probabilities(self) -> Doubles | None:
        """The logging policy's probabilities (n, K), if stored or uniform."""
        if self.probabilities is not None:
            return self.probabilities
        counts = self.arm_counts
        if np.allclose(self.propensities * counts, 1.0, rtol=0.0, atol=1e-9):
            return np.asarray(self.eligible / counts[:, None])
        return None

    def at_chosen(self, values: Doubles) -> Doubles:
        """The logged arm's entry of values (n, K)."""
        return np.asarray(values[np.arange(len(self)), self.arms])

    def rows(self, start: int, stop: int) -> "LoggedRounds":
        """The rounds from `start` on, before `stop`, with the target contexts seen among them."""
        seen = (self.unlabeled_before >= start) & (self.unlabeled_before < stop)
        before = self.unlabeled_before[seen] - start
        return self.taken(slice(start, stop), self.unlabeled[seen], before)

    def taken(
        self, rows: slice | Booleans, unlabeled: Floats, unlabeled_before: Integers
    ) -> "LoggedRounds":
        """These rounds, with other unlabeled contexts."""
        columns = {name: getattr(self, name)[rows] for name in COLUMNS}
        probabilities = None if self.probabilities is None else self.probabilities[rows]
        return LoggedRounds(
            **columns,
            probabilities=probabilities,
            unlabeled=unlabeled,
            unlabeled_before=unlabeled_before,
        )

    def parts(self, size: int) -> Iterator["LoggedRounds"]:
        """The rounds in order, `size` at a time; the last part includes contexts seen after it."""
        for start in range(0, max(1, len(self)), size):
            is_last = start + size >= len(self)
            yield self.rows(start, len(self) + 1 if is_last else start + size)

    def check(self) -> None:
        """ValueError unless the propensities and rewards can be weighted."""
        unknown = int((self.propensities == UNKNOWN_PROPENSITY).sum())
        if unknown:
            raise NotIdentifiableError(
                f"not identifiable: {unknown} of {len(self)} rounds have no propensity. Without the "
                "probability of the logged arm, a difference between arms may be one between those "
                "who got them. Import the propensities, or log rounds of this service."
            )
        if not ((self.propensities > 0) & (self.propensities <= 1)).all():
            raise ValueError("propensity: must lie in (0, 1]")
        if not ((self.rewards >= 0) & (self.rewards <= 1)).all():
            raise ValueError("reward: must lie in [0, 1]")
        if not self.eligible[np.arange(len(self)), self.arms].all():
            raise ValueError("arm: the logged arm is not eligible")
