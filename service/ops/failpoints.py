"""Places where a test can end the process: `DABAND_FAIL_AT=before_commit`, or `…:3` for the third time.

A third part names another signal: `before_snapshot:2:STOP` stops the process there instead of
killing it. Without the variable a failpoint does nothing.
"""

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

VARIABLE = "DABAND_FAIL_AT"
DEFAULTS = ("1", "KILL")  # the first time; the signal that nobody can catch


class Failpoint(StrEnum):
    """Every such place, in the order in which an event passes them."""

    BEFORE_INSERT = "before_insert"
    BEFORE_COMMIT = "before_commit"
    AFTER_COMMIT = "after_commit"
    AFTER_FOLD = "after_fold"
    BEFORE_CONCLUSION = "before_conclusion"
    AFTER_CONCLUSION = "after_conclusion"
    BEFORE_SNAPSHOT = "before_snapshot"
    AFTER_SNAPSHOT = "after_snapshot"
    AFTER_PUBLISH = "after_publish"


@dataclass(slots=True)
class Plan:
    """The place to fail at, after how many visits, and the signal that ends the process."""

    point: Failpoint
    visits_left: int
    signal: signal.Signals


def plan(environment: Mapping[str, str]) -> Plan | None:
    """What the variable asks for; ValueError when there is no such place, count or signal."""
    told = environment.get(VARIABLE)
    if not told:
        return None
    try:
        name, count, number = [*told.split(":"), *DEFAULTS[told.count(":") :]]
        return Plan(Failpoint(name), int(count), signal.Signals[f"SIG{number}"])
    except (KeyError, ValueError):
        known = ", ".join(Failpoint)
        raise ValueError(
            f"{VARIABLE} is name, name:count or name:count:signal of {known}"
        ) from None


@cache
def _plan() -> Plan | None:
    return plan(os.environ)


def reach(point: Failpoint) -> None:
    """End the process here if a test wants it so."""
    planned = _plan()
    if planned is None or planned.point is not point:
        return
    planned.visits_left -= 1
    if planned.visits_left == 0:
        os.kill(os.getpid(), planned.signal)
