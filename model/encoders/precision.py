"""How exactly training computes: CPUs with matrix units for bfloat16 convolve twice as fast in it.

Weights, gradients and all that is served stay float32; a step's gradient is an estimate from a
hundred contexts anyway. Decision 0040 has the figures.
"""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_CPU_INFO = Path("/proc/cpuinfo")
_FLAG = "amx_bf16"


@cache
def multiplies_bfloat16() -> bool:
    """Whether this machine's CPU has such units; where nobody says so, it has none."""
    return _CPU_INFO.exists() and _FLAG in _CPU_INFO.read_text()


def rounded(contexts: Tensor, *, is_wanted: bool) -> torch.autocast:
    """Meanwhile products of these contexts are taken in bfloat16, if wanted and where it is faster."""
    is_on = is_wanted and contexts.device.type == "cpu" and multiplies_bfloat16()
    return torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_on, cache_enabled=False)
