"""A pair of domains as two pairs of tables: the raw cells, and the numbers of a loader."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class FitTask:
    """Rows of source and target, read both ways, and the index of each row's best arm."""

    arms: Sequence[str]
    raw: tuple[list[Row], list[Row]]
    coded: tuple[list[Row], list[Row]]
    best: tuple[np.ndarray, np.ndarray]
    categorical: Sequence[str] = ()


def coded_rows(contexts: np.ndarray) -> list[Row]:
    """A loader's numbers as cells."""
    return [{f"x{place}": repr(float(each)) for place, each in enumerate(row)} for row in contexts]
