"""What the bus brought and nobody believes: counted, and logged without its bytes."""

import logging
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Any

QUIET_SECONDS = 1.0  # between two log lines of one reason: a flood must not fill a disk

log = logging.getLogger(__name__)


class Refusal(StrEnum):
    """Why a message or a cached snapshot is refused."""

    MESSAGE = "message"  # it is no experiment's name
    FORMAT = "format"  # another build wrote the snapshot
    SIGNATURE = "signature"  # the snapshot is not signed with the database's key
    VERSION = "version"  # the database has another snapshot of this version, or none


class Refusals:
    """Counts every refusal by `on_refusal`, and logs one of each reason a second."""

    def __init__(self, on_refusal: Callable[[str], None] = lambda reason: None) -> None:
        self._on_refusal = on_refusal
        self._quiet_until = dict.fromkeys(Refusal, 0.0)

    def note(self, reason: Refusal, **facts: Any) -> None:
        """Something was refused; `facts` say what, never its bytes."""
        self._on_refusal(reason)
        now = time.monotonic()
        if now >= self._quiet_until[reason]:
            self._quiet_until[reason] = now + QUIET_SECONDS
            details = {"action": "bus_refused", "reason": reason.value, **facts}
            log.warning("what the bus brought was refused", extra=details)
