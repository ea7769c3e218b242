"""The model's input and output values: domains, rounds, scores, selections."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Keys = NDArray[np.uint64]

_FLOAT32 = np.dtype(np.float32)
UNKNOWN_PROPENSITY = 0.0  # how the arm was chosen is unknown; no chosen arm has probability 0
HUGE = 1e15  # squares of values up to here stay inside float32
_FAR_FROM_OVERFLOW = 1e37  # a float32 sum of squares below it cannot have overflowed


class Domain(StrEnum):
    """Where a context comes from: rewards are cheap in `source`, absent or rare in `target`."""

    SOURCE = "source"
    TARGET = "target"


class Phase(StrEnum):
    """`zero_shot`: no target reward may be used. `continued`: target rewards fold too."""

    ZERO_SHOT = "zero_shot"
    CONTINUED = "continued"


@dataclass(frozen=True, slots=True)
class RewardedRound:
    """One decision with its reward, as the learner folds it.

    `reference` names the round's context in the event log (any integer that grows with the log).
    `context` is what φ sees: the shared context, or the chosen arm's own context.
    `arm` is the arm's index; a joint model ignores it. `propensity` may be unknown.
    """

    reference: int
    domain: Domain
    context: Floats
    arm: int
    reward: float
    propensity: float = 1.0


@dataclass(frozen=True, slots=True)
class RoundBlock:
    """Rounds in log order as columns: `contexts` (n, *shape), everything else (n,); see `RewardedRound`."""

    references: Integers
    is_target: Booleans
    contexts: Floats
    arms: Integers
    rewards: Doubles
    propensities: Doubles

    def __len__(self) -> int:
        return len(self.references)

    def part(self, start: int, end: int) -> "RoundBlock":
        """The rounds from `start` up to, not including, `end`."""
        columns = (getattr(self, name)[start:end] for name in self.__slots__)
        return RoundBlock(*columns)


class Scores(NamedTuple):
    """What the UCB rule sees, each (n, K): `ucb` = `mean` + `bonus`."""

    mean: Floats
    bonus: Floats
    ucb: Floats


class Selection(NamedTuple):
    """Chosen arms (n,) with the exact probability of every arm (n, K) and the scores behind them."""

    arms: Integers
    probabilities: Doubles
    scores: Scores


class TargetSelection(NamedTuple):
    """Best arms (n,) without exploration, with exact probabilities (n, K) and scores.

    `confidence` (n,), between 0 and 1, says how far aligned source data supports each choice. In the
    rows `tied` several arms are best; in all other rows the arm has probability 1.
    """

    arms: Integers
    probabilities: Doubles
    scores: Scores
    confidence: Doubles
    tied: Integers


def checked_contexts(contexts: object, shape: tuple[int, ...]) -> Floats:
    """Contexts as a float32 array of trailing shape `shape`; ValueError if they cannot be converted.

    Finiteness is checked after the cast: 1e39 is finite as float64 and infinite as float32. Values
    whose squares overflow are limited to ±HUGE: no encoder distinguishes them.
    """
    if isinstance(contexts, np.ndarray) and contexts.dtype is _FLOAT32:
        array: Floats = contexts
    else:
        array = _as_float32(contexts, shape)
    if array.shape[array.ndim - len(shape) :] != shape or array.ndim < len(shape):
        raise ValueError(f"context: expected trailing shape {shape}, got {array.shape}")
    # One product is enough in nearly every case; only an overflow of the squares needs a full check.
    if not math.isfinite(float(np.vdot(array, array))):
        if not np.isfinite(array).all():
            raise ValueError("context: contains NaN, infinity or a value beyond float32")
        array = array.clip(-HUGE, HUGE)
    return array


def checked_rows(contexts: Floats) -> Floats:
    """`checked_contexts` of each row (n, *shape) independently of the others."""
    flat = contexts.reshape(len(contexts), -1)
    # Rows far from overflow need no change; the few others are checked one by one.
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.vecdot(flat, flat)
    if np.maximum.reduce(squares) < _FAR_FROM_OVERFLOW:  # false where one is NaN
        return contexts
    checked = contexts.copy()
    for row in np.flatnonzero(~(squares < _FAR_FROM_OVERFLOW)).tolist():
        checked[row] = checked_contexts(contexts[row], contexts.shape[1:])
    return checked


def _as_float32(contexts: object, shape: tuple[int, ...]) -> Floats:
    try:
        with np.errstate(over="ignore"):
            return np.asarray(contexts, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"context: not an array of numbers of shape {shape}") from error


def checked_domain(domain: object) -> Domain:
    """The domain, or the domain of this name; ValueError if unknown."""
    try:
        return Domain(domain)  # type: ignore[arg-type]
    except ValueError:
        raise ValueError(f"domain: must be one of {', '.join(Domain)}") from None
