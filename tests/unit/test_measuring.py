"""The tests' own clock: what a host stole is nobody's delay."""

import os
from pathlib import Path

import pytest

from tests import measuring
from tests.measuring import Stopwatch

TICKS = os.sysconf("SC_CLK_TCK")


def write_stat(path: Path, *stolen_seconds: int) -> None:
    """Times of CPUs as Linux tells them, after a line of their sums."""
    stolen = [sum(stolen_seconds), *stolen_seconds]
    lines = [
        f"{name} 7 0 7 7 0 0 0 {seconds * TICKS} 0 0"
        for name, seconds in zip(("cpu ", "cpu0", "cpu1"), stolen, strict=True)
    ]
    path.write_text("\n".join([*lines, "intr 12 0", "btime 1"]))


@pytest.fixture
def stat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "stat"
    monkeypatch.setattr(measuring, "STAT", path)
    monkeypatch.setattr("tests.measuring.time.monotonic", iter((100.0, 110.0)).__next__)
    return path


def test_what_the_cpu_lost_that_lost_most_does_not_count(stat: Path):
    write_stat(stat, 50, 20)
    watch = Stopwatch()
    write_stat(stat, 51, 24)
    assert watch.seconds() == pytest.approx(6.0)


def test_where_nothing_is_stolen_it_is_a_clock(stat: Path):
    write_stat(stat, 50, 20)
    assert Stopwatch().seconds() == 10.0


def test_without_a_host_that_says_it_is_a_clock(stat: Path):
    assert not stat.exists()
    assert Stopwatch().seconds() == 10.0
