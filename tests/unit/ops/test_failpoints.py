"""Failpoints: off unless a test asks, and a closed set."""

import signal
import subprocess
import sys

import pytest
from pydantic import ValidationError

from service.ops.failpoints import VARIABLE, Failpoint, Plan, plan, reach
from service.settings import Settings
from tests.support.processes.service import ROOT, clean_environment


def test_without_the_variable_nothing_happens():
    assert plan({}) is None
    for point in Failpoint:
        reach(point)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("after_fold", Plan(Failpoint.AFTER_FOLD, 1, signal.SIGKILL)),
        ("before_commit:3", Plan(Failpoint.BEFORE_COMMIT, 3, signal.SIGKILL)),
        ("before_snapshot:2:STOP", Plan(Failpoint.BEFORE_SNAPSHOT, 2, signal.SIGSTOP)),
    ],
)
def test_place_count_and_signal_are_read(text: str, expected: Plan):
    assert plan({VARIABLE: text}) == expected


@pytest.mark.parametrize(
    "text", ["nowhere", "after_fold:x", "after_fold:1:LOUD", "after_fold:1:KILL:1"]
)
def test_what_is_no_failpoint_fails_at_the_start(text: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ValidationError, match="name:count:signal"):
        Settings()


def test_the_process_dies_at_the_visit_that_was_asked_for():
    code = "from service.ops.failpoints import *\nfor n in range(5): print(n); reach(Failpoint.AFTER_FOLD)"
    environment = clean_environment({VARIABLE: "after_fold:3"})
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGKILL, [b"0", b"1", b"2"])
