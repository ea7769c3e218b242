"""What counting costs: the metric updates of one select and of one reward, in one and in many processes.

Run as `python -m benchmarks.metrics_cost`; CPU microseconds, the least of several rounds.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

from model.bandit.selection import entropy
from service.metrics import Metrics

CALLS, ROUNDS = 5_000, 7
PROBABILITIES = np.array([0.955] + [0.005] * 9)


def select(metrics: Metrics) -> None:
    """All that is counted for one select of one side, which is alone in its event-loop tick."""
    metrics.requests_in_flight.set(1)
    metrics.observe_scoring([1])
    metrics.observe_append(1, 1, 0.002)
    metrics.count_decisions("doses", "source", 1, float(entropy(PROBABILITIES)))
    metrics.observe_request("/select", "POST", 200, 0.004)
    metrics.requests_in_flight.set(0)


def reward(metrics: Metrics) -> None:
    """All that is counted for one reward, which is alone in its event-loop tick."""
    metrics.requests_in_flight.set(1)
    metrics.observe_append(1, 1, 0.002)
    metrics.count_reward("doses", "source", 1.0)
    metrics.observe_request("/reward", "POST", 201, 0.004)
    metrics.requests_in_flight.set(0)


def microseconds(metrics: Metrics, work: Callable[[Metrics], None]) -> float:
    """CPU time of one call."""
    found = []
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(CALLS):
            work(metrics)
        found.append((time.process_time() - started) / CALLS * 1e6)
    return min(found)


def main() -> None:
    """Measure in this process, then in one that shares its numbers."""
    metrics = Metrics()
    kind = "several processes" if "PROMETHEUS_MULTIPROC_DIR" in os.environ else "one process"
    print(f"{kind}: select {microseconds(metrics, select):.1f} µs, ", end="")
    print(f"reward {microseconds(metrics, reward):.1f} µs", flush=True)
    if kind == "one process":
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": folder}
            command = [sys.executable, "-m", "benchmarks.metrics_cost"]
            subprocess.run(command, env=environment, check=True)  # noqa: S603


if __name__ == "__main__":
    main()
