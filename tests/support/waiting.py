"""Waiting for conditions, and limits of time that only a hang exceeds."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

PATIENCE_SECONDS = 300.0

# A busy machine must not make the service give up: most tests are about what is answered, not how fast.
PATIENT_SETTINGS: dict[str, Any] = {
    "startup_seconds": PATIENCE_SECONDS,
    "storage_timeout_seconds": 120.0,
    "redis_timeout_seconds": 60.0,
    "overload_seconds": 120.0,
    "header_timeout_seconds": 120.0,
    "body_timeout_seconds": 120.0,
    "slow_request_seconds": PATIENCE_SECONDS,
    "training_deadline_seconds": PATIENCE_SECONDS,
    "drain_seconds": 120.0,
}
PATIENT_ENVIRONMENT = {name.upper(): str(value) for name, value in PATIENT_SETTINGS.items()}

Condition = Callable[[], bool] | Callable[[], Awaitable[bool]]


class HasOutput(Protocol):
    """A process whose output explains why a wait failed."""

    name: str

    def tail(self) -> str:
        """The end of its output."""


async def eventually(condition: Condition, *involved: HasOutput) -> None:
    """Wait until the condition holds; a failure shows the output of the processes involved."""
    began = time.monotonic()
    while True:
        holds = condition()
        if await holds if isinstance(holds, Awaitable) else holds:
            return
        waited = time.monotonic() - began
        if waited > PATIENCE_SECONDS:
            output = "\n".join(f"--- {each.name}\n{each.tail()}" for each in involved)
            raise AssertionError(f"the condition does not hold\n{output}")
        await asyncio.sleep(_pause(waited))


def wait_until(condition: Callable[[], bool]) -> None:
    """The same without an event loop."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        assert waited < PATIENCE_SECONDS, "the condition does not hold"
        time.sleep(_pause(waited))


def _pause(waited: float) -> float:
    """A tenth of what was waited so far: to ask takes time from what is waited for."""
    return min(max(0.01, waited / 10), 0.2)
