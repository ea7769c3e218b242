"""The figures that decide about a run."""

import math
import subprocess
import sys
from collections import Counter

import numpy as np
import psutil
import pytest

from loadtest.figures import latency_growth, no_error, other_errors, recovery_seconds
from loadtest.lost_events import Comparison, compared
from loadtest.sampling import MEBIBYTE, Group, Sample, memory_slope
from loadtest.service_under_test import itself, started_by, tree
from tests.support.loadtest import stage_of

QUICK, SLOW = [0.01] * 50, [0.5] * 50


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([QUICK] * 5, 0), ([SLOW, SLOW, QUICK, QUICK], 2), ([QUICK, SLOW], math.inf)],
)
def test_latency_is_back_when_all_that_follows_is_within_the_bound(
    seconds: list[list[float]], expected: float
):
    assert recovery_seconds(stage_of(seconds), bound=0.02) == expected


def test_growing_latency_is_noticed():
    steady = stage_of([QUICK] * 12)
    growing = stage_of([[0.01 * (1 + second)] * 50 for second in range(12)])
    assert latency_growth(steady).is_met
    assert not latency_growth(growing).is_met


def test_refusals_are_errors_and_no_other_errors():
    stage = stage_of([QUICK], refused=3)
    stage.whole.due += 2
    stage.whole.outcomes["select", "timeout"] += 2
    assert (stage.error_count, other_errors(stage)) == (5, 2)
    assert not no_error([stage]).is_met
    assert no_error([stage_of([QUICK])]).is_met


def samples_of(sizes: np.ndarray) -> list[Sample]:
    return [Sample(float(moment), 0.0, int(size)) for moment, size in enumerate(sizes)]


def test_the_slope_of_memory_is_that_of_a_leak_under_noise():
    moments = np.arange(900)
    noise = np.random.default_rng(1).normal(0, 0.2 * MEBIBYTE, 900)
    leak = 300 * MEBIBYTE + moments * 3 * MEBIBYTE / 600 + noise
    assert memory_slope(samples_of(leak)) == pytest.approx(3, abs=0.2)
    assert memory_slope(samples_of(300 * MEBIBYTE + noise)) == pytest.approx(0, abs=0.2)


def test_a_peak_that_goes_away_is_no_slope():
    sizes = np.full(900, 300.0 * MEBIBYTE)
    sizes[600:700] += 50 * MEBIBYTE
    assert memory_slope(samples_of(sizes)) == pytest.approx(0, abs=0.01)


def test_the_cpu_time_of_a_process_that_ended_is_kept():
    mine = psutil.Process()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as started:
        child = psutil.Process(started.pid)
        group = Group(lambda: [mine, child])
        both = group.sample()
        started.communicate(b"\n")
    alone = group.sample()
    assert both.memory_bytes > mine.memory_info().rss
    assert alone.memory_bytes < both.memory_bytes
    assert alone.cpu_seconds >= both.cpu_seconds > 0


def test_a_process_and_its_children_are_measured_apart():
    script = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()  # the child is there
        (child,) = psutil.Process(started.pid).children()
        groups = [of(started.pid) for of in (itself, started_by, tree)]
        found = [[process.pid for process in group()] for group in groups]
        started.communicate(b"\n")
    assert found == [[started.pid], [child.pid], [started.pid, child.pid]]
    assert [group() for group in groups] == [[], [], []]


def test_a_dropped_event_is_found():
    acknowledged = {"select": {b"a", b"b"}, "reward": {b"a"}}
    whole = {"select": Counter([b"a", b"b", b"c"]), "reward": Counter([b"a"])}
    assert compared(acknowledged, whole) == Comparison(3, 4, lost=0, repeated=0)
    assert compared(acknowledged, whole | {"reward": Counter()}).lost == 1
    assert compared(acknowledged, whole | {"select": Counter([b"a"])}).lost == 1


def test_an_event_that_was_written_twice_is_found():
    assert compared({}, {"select": Counter([b"a", b"a", b"b"])}).repeated == 1
