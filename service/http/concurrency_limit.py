"""Limits the number of requests in flight, so that none waits long in a queue.

Little's law: requests in flight = requests per second × seconds per request. If even the fastest request
takes too long for half a second, there is a queue. The limit is then cut to the number that would be
answered in time. A burst or a few long requests do not cut it, because other requests stay fast. The limit
grows again slowly while requests are fast.

A request that waits for the rest of its body is paused and does not count, so that slow callers do not
block others. Requests in excess are refused before any work is done for them.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from service.codec.wire import Answer, Header, request_id_of
from service.errors import Overloaded
from service.http.dialects import spoken
from service.http.problems import problem_answer, send_answer
from service.metrics import Metrics
from service.ops.supervisor import Readiness

UNMATCHED = "unmatched"  # the route label of requests without a route
ALWAYS_OPEN = frozenset({"/healthz", "/readyz", "/metrics", "/v2/health/live", "/v2/health/ready"})

INTERVAL_SECONDS = 0.1
STANDING_INTERVALS = 5  # a disk may pause for some tenths of a second without a queue
# Small: on a starved machine more requests would exceed the database timeout again and again.
FLOOR = 16
GROWTH = 16  # per interval: from the floor to some hundreds in seconds


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """The maximum of requests in flight (and of paused ones), and the longest time of the fastest."""

    max_in_flight: int
    target_seconds: float


class ConcurrencyLimit:
    """Counts requests in flight; `is_open` says whether one more is allowed."""

    def __init__(self, limits: LoadLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = limits.max_in_flight
        self._target_seconds = limits.target_seconds
        self._clock = clock
        self.limit = self._most
        self.in_flight = 0
        self.paused = 0
        self._slow_intervals = 0
        self._fastest = math.inf
        self._peak = 0
        self._interval_end = clock() + INTERVAL_SECONDS

    @property
    def is_open(self) -> bool:
        """Whether one more request may be in flight."""
        return self.in_flight < self.limit

    def enter(self) -> float:
        """Count a request that begins; returns its start time, which `leave` takes."""
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)
        return self._clock()

    def leave(self, entered: float) -> None:
        """Count a request that has ended."""
        now = self._clock()
        self.in_flight -= 1
        self._fastest = min(self._fastest, now - entered)
        if now >= self._interval_end:
            self._adapt()
            self._begin_interval(now)

    @property
    def is_exceeded(self) -> bool:
        """Whether resumed requests exceed the limit."""
        return self.in_flight > self.limit

    @property
    def can_pause(self) -> bool:
        """Whether one more request may be paused; paused requests hold partial bodies in memory."""
        return self.paused < self._most

    def pause(self) -> None:
        """A request in flight starts to wait for its caller."""
        self.paused += 1
        self.in_flight -= 1

    def resume(self) -> float:
        """A paused request is in flight again, even beyond the limit."""
        self.paused -= 1
        return self.enter()

    def _begin_interval(self, now: float) -> None:
        self._interval_end = now + INTERVAL_SECONDS
        self._fastest = math.inf
        self._peak = self.in_flight

    def _adapt(self) -> None:
        is_slow = self._fastest > self._target_seconds
        self._slow_intervals = self._slow_intervals + 1 if is_slow else 0
        if self._slow_intervals >= STANDING_INTERVALS:
            answered_in_time = int(self._peak * self._target_seconds / self._fastest)
            self.limit = min(self.limit, max(answered_in_time, FLOOR))
        elif not is_slow and self._peak >= self.limit:
            self.limit = min(self._most, self.limit + GROWTH)


IN_FLIGHT = "in_flight"  # the key in a request's scope


class InFlight:
    """A request in flight, from its creation until `end`."""

    __slots__ = ("limit", "since")

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.limit = limit
        self.since = limit.enter()

    def end(self) -> None:
        """The request has ended."""
        self.limit.leave(self.since)


@contextmanager
def paused(scope: Mapping[str, Any]) -> Iterator[None]:
    """Pause the request of this scope, if it is counted, while it waits for its caller.

    Its time restarts afterwards.
    """
    request: InFlight | None = scope.get(IN_FLIGHT)
    if request is None:
        yield
        return
    if not request.limit.can_pause:
        raise Overloaded
    request.limit.pause()
    try:
        yield
    finally:
        request.since = request.limit.resume()


def is_crowded(scope: Mapping[str, Any]) -> bool:
    """Whether other requests took the place of this scope's request while it was paused."""
    request: InFlight | None = scope.get(IN_FLIGHT)
    return request is not None and request.limit.is_exceeded


class MetricsBuffer:
    """Counts requests; the number in flight is written once per event-loop tick.

    With several workers each write goes to a shared file: two per request would cost a tenth of a select.
    """

    def __init__(self, metrics: Metrics, limit: ConcurrencyLimit) -> None:
        self._metrics = metrics
        self._limit = limit
        self._is_due = False

    def add(self, route: str, method: str, status: int | None, seconds: float) -> None:
        """Count a finished request; `status` is None if it was not answered."""
        self._metrics.observe_request(route, method, status, seconds)
        self.write_soon()

    def write_soon(self) -> None:
        """Write the number of requests in flight at the end of this tick."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._is_due = False
        self._metrics.requests_in_flight.set(self._limit.in_flight + self._limit.paused)


class Shedding:
    """Counts requests in flight and answers 503 to those beyond the limit."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        buffer: MetricsBuffer,
        readiness: Readiness,
        limit: ConcurrencyLimit,
    ) -> None:
        self._app = app
        self._limit = limit
        self._buffer = buffer
        self._problems = metrics.problems.labels(Overloaded.slug)
        self._readiness = readiness

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if there is room, else refuse it."""
        if scope["type"] != "http" or scope["path"] in ALWAYS_OPEN:
            await self._app(scope, receive, send)
        elif self.has_room:
            await self._work(scope, receive, send)
        else:
            await self._refuse(scope, send)

    @property
    def has_room(self) -> bool:
        """Whether one more request may be in flight."""
        return self._limit.is_open

    def begin(self) -> InFlight:
        """Count a request until its end."""
        self._buffer.write_soon()
        return InFlight(self._limit)

    def early_refusal(self, url: bytes, headers: Iterable[Header]) -> bytes | None:
        """The encoded answer to a request in excess; None if there is room.

        A stopping process refuses through ASGI, which closes the connection.
        """
        if self.has_room or not self._readiness.is_ready:
            return None
        path = url.partition(b"?")[0].decode("ascii", "replace")
        if path in ALWAYS_OPEN:
            return None
        request_id = request_id_of(headers)
        refusal = spoken(path, self._refused(request_id))
        return b"%b\r\n%b" % (refusal.head(request_id), refusal.body)

    async def _work(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = scope[IN_FLIGHT] = self.begin()
        try:
            await self._app(scope, receive, send)
        finally:
            request.end()
            self._buffer.write_soon()

    async def _refuse(self, scope: Scope, send: Send) -> None:
        request_id = request_id_of(scope["headers"])
        refusal = self._refused(request_id)
        named = (*refusal.headers, (b"x-request-id", request_id.encode()))
        closes = not self._readiness.is_ready
        await send_answer(replace(refusal, headers=named, closes=closes), send)

    def _refused(self, request_id: str) -> Answer:
        """The answer to a request in excess, which is counted."""
        self._problems.inc()
        # Its duration is not measured: a refusal takes almost no time.
        self._buffer.add(UNMATCHED, "POST", Overloaded.status, 0.0)
        return problem_answer(Overloaded(), request_id)
