"""Measurements on a machine that others use, too."""

import math
from collections.abc import Awaitable, Callable, Sequence

ATTEMPTS = 3


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed."""
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


async def repeatedly(measure: Callable[[], Awaitable[tuple[bool, str]]]) -> None:
    """Measure until it is good: noise passes, a fault does not."""
    results = []
    for _ in range(ATTEMPTS):
        is_good, said = await measure()
        results.append(said)
        if is_good:
            return
    raise AssertionError(results)
