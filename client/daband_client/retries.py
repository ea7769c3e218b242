"""When a call is sent again, and how long the client waits before that."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from daband_client.errors import UnreachableError

RETRIED = frozenset({408, 429, 502, 503, 504})
NEVER_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout)
NOT_RETRIED = (httpx.UnsupportedProtocol, httpx.LocalProtocolError)


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a call is sent, and the waits in between.

    Waits double up to `max_seconds`; up to half of each is left to chance. `Retry-After` makes a
    wait longer, but the client gives up when it asks for more than `max_retry_after_seconds`.
    A client that never had an answer gives up after `first_attempts` failed connections: the
    address is probably wrong.
    """

    attempts: int = 8
    first_seconds: float = 0.1
    max_seconds: float = 5.0
    max_retry_after_seconds: float = 60.0
    first_attempts: int = 2

    def waits(self) -> Iterator[float]:
        """The wait before each further attempt."""
        for number in range(self.attempts - 1):
            longest = min(self.max_seconds, self.first_seconds * 2**number)
            yield random.uniform(longest / 2, longest)  # noqa: S311


class Attempts:
    """The attempts of one call: what to do after each that failed."""

    def __init__(self, retries: Retries, url: str, had_answer: bool) -> None:
        self._retries = retries
        self._url = url
        self._had_answer = had_answer
        self._waits = retries.waits()
        self._count = 0

    def after_error(self, error: httpx.TransportError) -> float:
        """The seconds to wait after there was no answer; `UnreachableError` after the last attempt."""
        self._count += 1
        wait = next(self._waits, None)
        is_new = isinstance(error, NEVER_CONNECTED) and not self._had_answer
        is_hopeless = is_new and self._count >= self._retries.first_attempts
        if wait is None or is_hopeless or isinstance(error, NOT_RETRIED):
            cause = str(error) or type(error).__name__
            tries = "1 attempt" if self._count == 1 else f"{self._count} attempts"
            raise UnreachableError(f"no answer from {self._url}: {cause} ({tries})") from error
        return wait

    def after_answer(self, answer: httpx.Response) -> float | None:
        """The seconds to wait after this answer; none where it is the last one."""
        self._count += 1
        self._had_answer = True
        asked = _retry_after(answer)
        if answer.status_code not in RETRIED or asked > self._retries.max_retry_after_seconds:
            return None
        wait = next(self._waits, None)
        return None if wait is None else max(wait, asked)


def _retry_after(answer: httpx.Response) -> float:
    given = answer.headers.get("Retry-After", "")
    return float(given) if given.isdecimal() else 0.0
