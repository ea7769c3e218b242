"""Generated inputs, and settings under which every run sees the same examples."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings, strategies as st
from hypothesis.extra import numpy as hnp

LARGEST = float(np.finfo(np.float32).max)
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32) | st.sampled_from(
    [LARGEST, -LARGEST, float(np.finfo(np.float32).smallest_subnormal), 0.0]
)
SMALL = st.floats(-1.0, 1.0, width=32)


def repeatable(examples: int = 50) -> Callable[[Any], Any]:
    """The same examples in every run, without a database or a deadline."""
    return settings(max_examples=examples, derandomize=True, deadline=None, database=None)


@st.composite
def round_columns(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Latents (n, 4), one of 3 arms (n,) and rewards (n,) of up to 40 rounds."""
    count = draw(st.integers(0, 40))
    latents = draw(hnp.arrays(np.float32, (count, 4), elements=SMALL))
    chosen = draw(hnp.arrays(np.int64, count, elements=st.integers(0, 2)))
    return latents, chosen, draw(hnp.arrays(np.float64, count, elements=st.floats(0.0, 1.0)))
