"""When requests are due: planned ahead, so that no slow answer can delay the next request."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Times: TypeAlias = NDArray[np.float64]


class Arrivals(StrEnum):
    """How the requests of a second are spread over it."""

    CONSTANT = "constant"
    POISSON = "poisson"


@dataclass(frozen=True, slots=True)
class Segment:
    """Some seconds of one rate, in requests a second over all generators."""

    rate: float
    seconds: int


@dataclass(frozen=True, slots=True)
class Share:
    """Which of the generators this one is: together they send the whole rate."""

    index: int = 0
    count: int = 1


def due_times(
    segments: Sequence[Segment], arrivals: Arrivals, seed: int, share: Share | None = None
) -> Times:
    """Seconds from the start at which one generator's requests are due, in order.

    The constant arrivals of the generators interleave to one even row. Independent Poisson
    processes add up to one of the whole rate.
    """
    share = share or Share()
    rng = np.random.default_rng([seed, share.index])
    parts, start = [], 0.0
    for segment in segments:
        spread = _constant(segment, share) if arrivals is Arrivals.CONSTANT else None
        parts.append(start + (spread if spread is not None else _poisson(segment, share, rng)))
        start += segment.seconds
    return np.concatenate(parts) if parts else np.empty(0)


def _constant(segment: Segment, share: Share) -> Times:
    total = round(segment.rate * segment.seconds)
    return np.arange(share.index, total, share.count) / segment.rate


def _poisson(segment: Segment, share: Share, rng: np.random.Generator) -> Times:
    # Given their number, the arrivals of a Poisson process are uniform over the time.
    number = rng.poisson(segment.rate * segment.seconds / share.count)
    return np.sort(rng.uniform(0, segment.seconds, number))
