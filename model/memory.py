"""The learner's memory of the log: a window of rounds and reservoirs of contexts.

Both are bounded and depend only on the log and the seed. Contexts live on the learner's device, so
that training and rebuilding need no copies from the host.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.randomness import KeyedUniforms, context_keys, derived_seed, uniform
from model.rounds import Booleans, Doubles, Floats, Integers, RoundBlock

FIRST_ROWS = 64  # initial rows of a block, which doubles as it grows


class ContextRows:
    """A growing, bounded block of contexts (capacity, *shape) addressed by row."""

    def __init__(self, capacity: int, shape: tuple[int, ...], device: torch.device) -> None:
        self.capacity = capacity
        self._hold(torch.zeros((min(capacity, FIRST_ROWS), *shape), device=device))

    def __len__(self) -> int:
        return self._length

    def put(self, rows: Integers, contexts: Floats) -> None:
        """Store contexts at these rows, no row twice, growing the block up to its capacity."""
        self._grow(int(rows.max()) + 1)
        device = self.values.device
        self.values[torch.from_numpy(rows).to(device)] = torch.from_numpy(contexts).to(device)

    def put_run(self, start: int, contexts: Floats) -> None:
        """`put` at the rows from `start` on."""
        end = start + len(contexts)
        self._grow(end)
        if self._on_host is not None:
            self._on_host[start:end] = contexts
        else:
            self.values[start:end] = torch.from_numpy(contexts)

    def load(self, contexts: Tensor) -> None:
        """Hold these contexts from row 0 on."""
        self._hold(_extended(contexts, max(len(contexts), len(self))))

    def _grow(self, needed: int) -> None:
        size = len(self)
        if needed > size:
            while size < needed:
                size *= 2
            self._hold(_extended(self.values, min(self.capacity, size)))

    def _hold(self, values: Tensor) -> None:
        self.values, self._length = values, len(values)
        # A numpy view of the same memory: writing a few rows costs much less than through torch.
        self._on_host: Floats | None = values.numpy() if values.device.type == "cpu" else None


def _extended(values: Tensor, rows: int) -> Tensor:
    longer = values.new_zeros((rows, *values.shape[1:]))
    longer[: len(values)] = values
    return longer


def _lengthened(column: NDArray[Any], rows: int) -> NDArray[Any]:
    longer = np.zeros(rows, dtype=column.dtype)
    longer[: len(column)] = column
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
        # Each column grows with the contexts.
        self._columns: dict[str, NDArray[Any]] = {
            name: np.zeros(FIRST_ROWS, dtype=kind) for name, kind in COLUMNS.items()
        }

    def __len__(self) -> int:
        return min(self.count, self.capacity)

    def add(self, block: RoundBlock, held_out: Booleans) -> None:
        """Remember rounds; the oldest ones go when the window is full."""
        start = 0
        while start < len(block):
            end = start + self.capacity - self._next  # of the ring
            self._add(block.part(start, end), held_out[start:end])
            start = end

    def _add(self, block: RoundBlock, held_out: Booleans) -> None:
        """Remember rounds that fit between the next row and the end of the ring."""
        columns = (
            block.references,
            block.arms,
            block.rewards,
            block.propensities,
            block.is_target,
            held_out,
        )
        rows = slice(self._next, self._next + len(block))
        self.contexts.put_run(self._next, block.contexts)
        for name, values in zip(COLUMNS, columns, strict=True):
            if len(self._columns[name]) < len(self.contexts):
                self._columns[name] = _lengthened(self._columns[name], len(self.contexts))
            self._columns[name][rows] = values
        self._next = rows.stop % self.capacity
        self.count += len(block)

    def batch(self) -> RoundBatch:
        """A copy of the window, oldest round first."""
        order = self._order()
        rows = torch.from_numpy(order).to(self.contexts.values.device)
        return RoundBatch(
            self.contexts.values[rows], *(column[order] for column in self._columns.values())
        )

    @property
    def held_out_count(self) -> int:
        """How many rounds of the source only judge encoders."""
        is_held_out, is_target = self._columns["is_held_out"], self._columns["is_target"]
        return int(np.count_nonzero((is_held_out & ~is_target)[: len(self)]))

    def holds(self, rounds: RoundBatch) -> bool:
        """Whether the window consists of exactly these rounds."""
        if len(self) != len(rounds):
            return False
        return np.array_equal(self._columns["references"][self._order()], rounds.references)

    def load(self, rounds: RoundBatch, count: int) -> None:
        """Become the window that has seen `count` rounds and still holds these, oldest first."""
        self._columns = {name: getattr(rounds, name).astype(kind) for name, kind in COLUMNS.items()}
        self.contexts.load(rounds.contexts)
        self._next = len(rounds) % self.capacity
        self.count = count

    def _order(self) -> Integers:
        """The rows of all rounds, oldest first."""
        filled = len(self)
        oldest = self._next if filled == self.capacity else 0
        return (np.arange(filled) + oldest) % max(1, filled)


@dataclass(frozen=True, slots=True)
class ContextSample:
    """Unlabeled contexts (n, *shape) with their references (n,)."""

    contexts: Tensor
    references: Integers


class Reservoir:
    """A uniform sample of a domain's contexts; the replaced one depends on (seed, count) alone."""

    def __init__(
        self, capacity: int, shape: tuple[int, ...], device: torch.device, seed: int, name: str
    ) -> None:
        self.capacity = capacity
        self.count = 0
        self.references: list[int] = []
        self.contexts = ContextRows(capacity, shape, device)
        self._seed, self._name = seed, name

    def add(self, references: Integers, contexts: Floats) -> None:
        """Offer contexts (n, *shape) to the sample, in order."""
        chosen: dict[int, int] = {}  # row of the sample → index of the last context that takes it
        for index in range(len(references)):
            row = self._row_of_next()
            if row < self.capacity:
                chosen[row] = index
        if not chosen:
            return
        rows, kept = np.array(list(chosen)), np.array(list(chosen.values()))
        filled = min(self.capacity, self.count)
        self.references += [0] * (filled - len(self.references))
        for row, index in chosen.items():
            self.references[row] = int(references[index])
        self.contexts.put(rows, contexts[kept])

    def _row_of_next(self) -> int:
        """The row of the next context; a row beyond the capacity means that it is dropped."""
        row = self.count
        self.count += 1
        if row < self.capacity:
            return row
        return derived_seed(self._seed, "reservoir", self._name, self.count) % self.count

    def sample(self) -> ContextSample:
        contexts = self.contexts.values[: len(self.references)].clone()
        return ContextSample(contexts, np.array(self.references, dtype=np.int64))

    def last(self, count: int) -> Tensor:
        """A copy of the contexts in the sample's last rows, at most `count`."""
        filled = len(self.references)
        return self.contexts.values[max(0, filled - count) : filled].clone()

    def load(self, sample: ContextSample, count: int) -> None:
        """Become the reservoir that has seen `count` contexts and kept these."""
        self.references = sample.references.tolist()
        self.contexts.load(sample.contexts)
        self.count = count


class HeldOutRounds:
    """Decides which rounds are held out from training to judge encoders.

    The number of a round decides, or with `by_context` its context, so that a subject that is played
    twice is never in both parts.
    """

    def __init__(self, seed: int, share: float, *, by_context: bool) -> None:
        self._seed = seed
        self._keyed = KeyedUniforms(seed, "held-out contexts")
        self._share = share
        self._by_context = by_context

    def among(self, first: int, contexts: Floats) -> Booleans:
        """Whether each of the rounds with these contexts, numbered from `first`, is held out, (n,)."""
        if self._by_context:
            return self._keyed.many(context_keys(contexts)) < self._share
        numbers = range(first, first + len(contexts))
        draws = [uniform(self._seed, "holdout", number) for number in numbers]
        return np.array(draws, dtype=np.float64) < self._share
