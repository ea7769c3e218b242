"""Measurements on a machine that others use, too."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed."""
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]
