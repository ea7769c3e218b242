"""CPU time and memory of the processes under test, sampled during the load."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import psutil

SAMPLE_SECONDS = 1.0
MEBIBYTE = 1024 * 1024
TEN_MINUTES = 600.0

Processes = Callable[[], Sequence[psutil.Process]]


@dataclass(frozen=True, slots=True)
class Sample:
    """CPU seconds so far and resident bytes of a group of processes at a time of the clock."""

    moment: float
    cpu_seconds: float
    memory_bytes: int


class Group:
    """Processes that are sampled together; the CPU time of those that ended is kept."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._used: dict[int, float] = {}

    def sample(self) -> Sample:
        """All of them as they are now."""
        memory_bytes = 0
        for process in self._processes():
            try:
                times = process.cpu_times()
                memory_bytes += process.memory_info().rss
            except psutil.NoSuchProcess:
                continue
            self._used[process.pid] = times.user + times.system
        return Sample(time.monotonic(), sum(self._used.values()), memory_bytes)


class Sampler:
    """Samples groups of processes until it is left."""

    def __init__(self, groups: Mapping[str, Processes]) -> None:
        self._groups = {name: Group(processes) for name, processes in groups.items()}
        self.samples: dict[str, list[Sample]] = {name: [] for name in groups}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def __enter__(self) -> "Sampler":
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over.set()
        self._thread.join()

    def cpu_shares(self, start: float, end: float) -> dict[str, float]:
        """Cores that each group used in this time."""
        found = {}
        for name, samples in self.samples.items():
            within = [each for each in samples if start <= each.moment <= end]
            if len(within) > 1:
                first, last = within[0], within[-1]
                used = last.cpu_seconds - first.cpu_seconds
                found[name] = used / (last.moment - first.moment)
        return found

    def memory_bytes(self, start: float, end: float) -> dict[str, int]:
        """The most memory that each group had in this time."""
        within = {
            name: [each.memory_bytes for each in samples if start <= each.moment <= end]
            for name, samples in self.samples.items()
        }
        return {name: max(sizes) for name, sizes in within.items() if sizes}

    def _run(self) -> None:
        while not self._is_over.wait(SAMPLE_SECONDS):
            for name, group in self._groups.items():
                self.samples[name].append(group.sample())


def memory_slope(samples: Sequence[Sample]) -> float:
    """MiB that are added in ten minutes: the median slope of all pairs of points (Theil and Sen).

    A jump that goes away again does not move it, unlike a least-squares line.
    """
    if len(samples) < 3:
        return 0.0
    thinned = samples[:: max(1, len(samples) // 300)]
    moments = np.array([each.moment for each in thinned])
    sizes = np.array([each.memory_bytes for each in thinned], dtype=np.float64)
    later, earlier = np.triu_indices(len(thinned), 1)[::-1]
    slopes = (sizes[later] - sizes[earlier]) / (moments[later] - moments[earlier])
    return float(np.median(slopes)) * TEN_MINUTES / MEBIBYTE
