"""Failpoints, where tests can end the process: `DABAND_FAIL_AT=before_commit`, or `…:3` for the third time.

A third part names another signal: `before_snapshot:2:STOP` stops the process instead of killing it.
Without the variable, failpoints do nothing.
"""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

VARIABLE = "DABAND_FAIL_AT"
DEFAULTS = ("1", "KILL")  # the first time, with the signal that cannot be caught


class Failpoint(StrEnum):
    """All failpoints, in the order in which an event reaches them, up to its archiving."""

    BEFORE_INSERT = "before_insert"
    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"
    AFTER_FOLD = "after_fold"
    BEFORE_CONCLUSION = "before_conclusion"
    AFTER_CONCLUSION = "after_conclusion"
    BEFORE_SNAPSHOT = "before_snapshot"
    AFTER_SNAPSHOT = "after_snapshot"
    AFTER_PUBLISH = "after_publish"
    BEFORE_MANIFEST = "before_manifest"
    AFTER_MANIFEST = "after_manifest"


@dataclass(slots=True)
class Plan:
    """The failpoint, how often it is still to be reached, and the signal to send then."""

    point: Failpoint
    times_left: int
    signal: signal.Signals


def plan(environment: Mapping[str, str]) -> Plan | None:
    """The plan in the variable; ValueError for an unknown failpoint, count or signal."""
    text = environment.get(VARIABLE)
    if not text:
        return None
    try:
        name, count, number = [*text.split(":"), *DEFAULTS[text.count(":") :]]
        return Plan(Failpoint(name), int(count), signal.Signals[f"SIG{number}"])
    except (KeyError, ValueError):
        known = ", ".join(Failpoint)
        raise ValueError(
            f"{VARIABLE} must be name, name:count or name:count:signal; names: {known}"
        ) from None


@cache
def _plan() -> Plan | None:
    return plan(os.environ)


def reach(point: Failpoint) -> None:
    """End the process here if a test has planned it."""
    planned = _plan()
    if planned is None or planned.point is not point:
        return
    planned.times_left -= 1
    if planned.times_left == 0:
        os.kill(os.getpid(), planned.signal)
