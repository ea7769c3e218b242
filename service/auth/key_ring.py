"""The keys in memory: requests are checked without the database, which is polled for changes."""

import asyncio
import hmac
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from math import ceil, inf
from typing import Protocol

from service.auth.keys import ApiKey, Caller, RateLimit, digest, parsed
from service.errors import KeyRefused, RateLimited, StorageUnavailable

NO_DIGEST = "0" * 64

log = logging.getLogger(__name__)


class TokenBucket:
    """A token bucket: up to `burst` tokens, refilled at `per_second`; a request costs one."""

    __slots__ = ("_filled_at", "_tokens", "limit")

    def __init__(self, limit: RateLimit, now: float) -> None:
        self.limit = limit
        self._tokens = float(limit.burst)
        self._filled_at = now

    def take(self, now: float) -> float:
        """Take a token and return 0, or return the seconds until one is available."""
        per_second = self.limit.per_second
        if not per_second:
            return 0.0
        gained = max(0.0, now - self._filled_at) * per_second
        self._tokens = min(float(self.limit.burst), self._tokens + gained)
        self._filled_at = now
        if self._tokens >= 1:
            self._tokens -= 1
            return 0.0
        return (1 - self._tokens) / per_second


class KeySource(Protocol):
    """The store of the keys."""

    async def version(self) -> int:
        """A number that changes with every change of a key."""

    async def usable(self) -> list[ApiKey]:
        """The keys that are neither revoked nor expired."""


@dataclass(frozen=True, slots=True)
class _Held:
    caller: Caller
    secrets: tuple[tuple[str, float], ...]  # SHA-256 and expiry
    expires_at: float
    bucket: TokenBucket


class KeyRing:
    """Holds every usable key, at most `poll_seconds` after a change.

    While the database is unavailable it uses the last known keys.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._stopwatch = stopwatch
        self._keys: dict[str, _Held] = {}
        self._version = -1

    async def refresh(self, source: KeySource) -> None:
        """Reload the keys if they have changed."""
        version = await source.version()
        if version != self._version:
            self._hold(await source.usable())
            self._version = version

    async def follow(self, source: KeySource, poll_seconds: float) -> None:
        """Refresh until cancelled; meant for a supervisor."""
        while True:
            await asyncio.sleep(poll_seconds)
            try:
                await self.refresh(source)
            except StorageUnavailable:
                log.warning(
                    "keys not polled: storage is unavailable", extra={"action": "key_poll_failed"}
                )

    def caller(self, key: str) -> Caller:
        """The caller with this key; raises `KeyRefused` or `RateLimited`."""
        key_id, secret = parsed(key) or ("", "")
        offered = digest(secret)
        return self.caller_of(key_id, lambda sha256: hmac.compare_digest(sha256, offered))

    def caller_of(self, key_id: str, is_right: Callable[[str], bool]) -> Caller:
        """The caller with a key one of whose valid secrets' hashes is right; raises like `caller`."""
        if not self.recognises(key_id, is_right):
            raise KeyRefused
        return self._within_limit(self._keys[key_id])

    def recognises(self, key_id: str, is_right: Callable[[str], bool]) -> bool:
        """Whether there is a key one of whose valid secrets' hashes is right."""
        held, now = self._keys.get(key_id), self._clock()
        # An unknown id takes as long as a wrong secret: one comparison in constant time.
        candidates = held.secrets if held is not None else ((NO_DIGEST, -inf),)
        is_known = False
        for sha256, ends_at in candidates:
            is_known |= is_right(sha256) and now < ends_at
        return is_known and held is not None and now < held.expires_at

    def _within_limit(self, held: _Held) -> Caller:
        wait = held.bucket.take(self._stopwatch())
        if wait:
            raise RateLimited(ceil(wait))
        return held.caller

    def _hold(self, keys: Iterable[ApiKey]) -> None:
        # A new mapping each time: revoked keys disappear with their buckets, so memory is bounded.
        self._keys = {key.key_id: self._held(key) for key in keys}

    def _held(self, key: ApiKey) -> _Held:
        before = self._keys.get(key.key_id)
        is_same = before is not None and before.bucket.limit == key.rate_limit
        bucket = before.bucket if before and is_same else None
        return _Held(
            caller=Caller(key.tenant_scope, key.scopes, key.key_id),
            secrets=tuple((each.sha256, _moment(each.expires_at)) for each in key.secrets),
            expires_at=_moment(key.expires_at),
            bucket=bucket or TokenBucket(key.rate_limit, self._stopwatch()),
        )


def _moment(at: datetime | None) -> float:
    return inf if at is None else at.timestamp()
