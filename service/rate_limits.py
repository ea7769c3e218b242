"""Rate limits by token bucket, in the memory of one process."""

from service.keys import RateLimit


class TokenBucket:
    """Holds up to `burst` tokens and gains `per_second` of them; a request costs one."""

    __slots__ = ("_filled_at", "_tokens", "limit")

    def __init__(self, limit: RateLimit, now: float) -> None:
        self.limit = limit
        self._tokens = float(limit.burst)
        self._filled_at = now

    def take(self, now: float) -> float:
        """0 and a token less, or how many seconds to wait for one."""
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
