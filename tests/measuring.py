"""Measurements on a machine that others use, too."""

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path

# What only a hang exceeds, for the machine may be busy.
PATIENCE_SECONDS = 90.0
STAT = Path("/proc/stat")  # Linux: times of each CPU, in ticks
STOLEN = 8  # the field of the time that a virtual CPU wanted to run, and its host ran others


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of all do not exceed."""
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


class Stopwatch:
    """Stands still while the host of a virtual machine gives its time to others.

    What is promised to happen within seconds is promised of a machine that runs: on a busy host half of
    the time may be stolen, and nothing in the machine can hurry meanwhile. It is stolen in ticks of about
    10 ms: for seconds, not for the latencies of single calls.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._stolen = _stolen_seconds()

    def seconds(self) -> float:
        """Since it was made, without what was lost meanwhile."""
        return time.monotonic() - self._began - self.lost_seconds()

    def lost_seconds(self) -> float:
        """What was stolen of the CPU that lost most: any may have been waited for."""
        lost = (now - then for now, then in zip(_stolen_seconds(), self._stolen, strict=True))
        return max(lost, default=0.0)


def _stolen_seconds() -> list[float]:
    """Of each CPU, since the machine was started; nothing where no host says."""
    if not STAT.exists():
        return []
    ticks = os.sysconf("SC_CLK_TCK")
    lines = [line.split() for line in STAT.read_text().splitlines()]
    cpus = [fields for fields in lines if fields[0].startswith("cpu") and fields[0] != "cpu"]
    return [int(fields[STOLEN]) / ticks for fields in cpus]
