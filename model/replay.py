"""What the learner remembers of the log: a window of rounds and reservoirs of contexts.

Both are bounded, and both are functions of the log and the seed. Contexts live on the learner's
device, so that training and rebuilding gather them without copies from the host.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.randomness import derived_seed, uniform
from model.rounds import Booleans, Domain, Doubles, Floats, Integers, Round


class ContextRows:
    """A growing, bounded block of contexts (capacity, *shape) addressed by row."""

    def __init__(self, capacity: int, shape: tuple[int, ...], device: torch.device) -> None:
        self.capacity = capacity
        self.values = torch.zeros((min(capacity, 64), *shape), device=device)

    def put(self, row: int, context: Floats) -> None:
        """Store a context, growing the block up to its capacity."""
        if row >= len(self.values):
            grown = min(self.capacity, 2 * len(self.values))
            self.values = _extended(self.values, grown)
        self.values[row] = torch.from_numpy(context)

    def load(self, contexts: Tensor) -> None:
        """Hold these contexts from row 0 on."""
        self.values = _extended(contexts, max(len(contexts), len(self.values)))


def _extended(values: Tensor, rows: int) -> Tensor:
    longer = values.new_zeros((rows, *values.shape[1:]))
    longer[: len(values)] = values
    return longer


@dataclass(frozen=True, slots=True)
class RoundBatch:
    """Rounds in log order as columns; `contexts` (n, *shape), everything else (n,)."""

    contexts: Tensor
    references: Integers
    arms: Integers
    rewards: Doubles
    propensities: Doubles
    is_target: Booleans
    is_held_out: Booleans

    def __len__(self) -> int:
        return len(self.arms)

    def rows(self, chosen: Booleans) -> "RoundBatch":
        """The rounds where `chosen` is true."""
        picked = torch.from_numpy(np.flatnonzero(chosen)).to(self.contexts.device)
        return RoundBatch(self.contexts[picked], *(getattr(self, name)[chosen] for name in COLUMNS))

    def newest(self, count: int) -> "RoundBatch":
        """The last `count` rounds, or all there are."""
        return self.rows(np.arange(len(self)) >= len(self) - count)


# The columns of a window beside its contexts, in RoundBatch's order.
COLUMNS: dict[str, type] = {
    "references": np.int64,
    "arms": np.int64,
    "rewards": np.float64,
    "propensities": np.float64,
    "is_target": np.bool_,
    "is_held_out": np.bool_,
}


class RoundWindow:
    """The newest rounds, a ring."""

    def __init__(self, capacity: int, shape: tuple[int, ...], device: torch.device) -> None:
        self.capacity = capacity
        self.count = 0
        self._next = 0
        self.contexts = ContextRows(capacity, shape, device)
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    def add(self, round_: Round, is_held_out: bool) -> None:
        """Remember a round; the oldest one goes when the window is full."""
        is_target = round_.domain is Domain.TARGET
        values = (
            round_.reference,
            round_.arm,
            round_.reward,
            round_.propensity,
            is_target,
            is_held_out,
        )
        for column, value in zip(self._columns.values(), values, strict=True):
            if self._next < len(column):
                column[self._next] = value
            else:
                column.append(value)
        self.contexts.put(self._next, round_.context)
        self._next = (self._next + 1) % self.capacity
        self.count += 1

    def batch(self) -> RoundBatch:
        """A copy of the window, oldest round first."""
        filled = len(self)
        oldest = self._next if filled == self.capacity else 0
        order = (np.arange(filled) + oldest) % max(1, filled)
        rows = torch.from_numpy(order).to(self.contexts.values.device)
        columns: list[Any] = [
            np.array(self._columns[name], dtype=kind)[order] for name, kind in COLUMNS.items()
        ]
        return RoundBatch(self.contexts.values[rows], *columns)

    def load(self, rounds: RoundBatch, count: int) -> None:
        """Become the window that has seen `count` rounds and still holds these, oldest first."""
        self._columns = {name: getattr(rounds, name).tolist() for name in COLUMNS}
        self.contexts.load(rounds.contexts)
        self._next = len(rounds) % self.capacity
        self.count = count


@dataclass(frozen=True, slots=True)
class ContextSample:
    """Unlabeled contexts (n, *shape) with their references (n,)."""

    contexts: Tensor
    references: Integers


class Reservoir:
    """A uniform sample of all contexts seen of a domain; which one goes depends on (seed, count)."""

    def __init__(
        self, capacity: int, shape: tuple[int, ...], device: torch.device, seed: int, name: str
    ) -> None:
        self.capacity = capacity
        self.count = 0
        self.references: list[int] = []
        self.contexts = ContextRows(capacity, shape, device)
        self._seed = seed
        self._name = name

    def add(self, reference: int, context: Floats) -> None:
        """Offer a context to the sample."""
        row = self.count
        self.count += 1
        if row >= self.capacity:
            row = derived_seed(self._seed, "reservoir", self._name, self.count) % self.count
            if row >= self.capacity:
                return
            self.references[row] = reference
        else:
            self.references.append(reference)
        self.contexts.put(row, context)

    def sample(self) -> ContextSample:
        """A copy of the sample."""
        contexts = self.contexts.values[: len(self.references)].clone()
        return ContextSample(contexts, np.array(self.references, dtype=np.int64))

    def load(self, sample: ContextSample, count: int) -> None:
        """Become the reservoir that has seen `count` contexts and kept these."""
        self.references = sample.references.tolist()
        self.contexts.load(sample.contexts)
        self.count = count


def is_held_out(seed: int, round_number: int, share: float) -> bool:
    """Whether a round is kept from training to judge encoders."""
    return uniform(seed, "holdout", round_number) < share
