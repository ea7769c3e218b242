"""How many requests may be at work at once, so that none waits long in line.

Little's law: requests at work = requests answered a second × the time that each takes. When even
the fastest request took longer than it should, for half a second on end, a line stands in front
of everyone, and the number that may be at work is cut to what would be answered in time. A burst, a
pause of the process or a few long requests do not do that: somebody is fast in between. While all
is well the number grows again, slowly.

A request is at work while it costs us something. One that waits for its caller to send the rest of
its body stands aside: callers that are slow on purpose keep nobody else out.
"""

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from service.errors import Overloaded
from service.metrics import Metrics

INTERVAL_SECONDS = 0.1
STANDING_INTERVALS = 5  # a disk may pause for some tenths of a second: that is no line
# Few: on a machine that is starved, more would wait for longer than the database may take, and
# whole batches of the event log would be given up again and again.
FLOOR = 16
GROWTH = 16  # an interval: from the floor to some hundreds in seconds


@dataclass(frozen=True, slots=True)
class LoadLimits:
    """Most requests at work (and as many aside), and how long the fastest of them may take."""

    max_in_flight: int
    target_seconds: float


class ConcurrencyLimit:
    """Counts requests in and out; `is_open` says whether one more may come in."""

    def __init__(self, limits: LoadLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = limits.max_in_flight
        self._target_seconds = limits.target_seconds
        self._clock = clock
        self.limit = self._most
        self.in_flight = 0
        self.aside = 0
        self._slow_intervals = 0
        self._fastest = math.inf
        self._peak = 0
        self._interval_end = clock() + INTERVAL_SECONDS

    @property
    def is_open(self) -> bool:
        """Whether one more request may be at work."""
        return self.in_flight < self.limit

    def enter(self) -> float:
        """A request begins; its time of entry, to be given back when it ends."""
        self.in_flight += 1
        self._peak = max(self._peak, self.in_flight)
        return self._clock()

    def leave(self, entered: float) -> float:
        """A request that began at this time has ended; the seconds that it took."""
        now = self._clock()
        seconds = now - entered
        self.in_flight -= 1
        self._fastest = min(self._fastest, seconds)
        if now >= self._interval_end:
            self._adapt()
            self._begin_interval(now)
        return seconds

    @property
    def is_exceeded(self) -> bool:
        """Whether more are at work than may be, for some came back from aside."""
        return self.in_flight > self.limit

    @property
    def is_open_aside(self) -> bool:
        """Whether one more request may stand aside: what they hold of their bodies takes memory."""
        return self.aside < self._most

    def step_aside(self) -> None:
        """A request at work begins to wait for its caller."""
        self.aside += 1
        self.in_flight -= 1

    def step_back(self) -> float:
        """Its caller has sent something: it is at work again, whether there is room or not."""
        self.aside -= 1
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


VISIT = "visit"  # where a request's scope keeps it


class Visit:
    """A request that is at work from now until its end."""

    __slots__ = ("_limit", "_since")

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self._limit = limit
        self._since = limit.enter()

    def end(self) -> None:
        """The request has ended."""
        self._limit.leave(self._since)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Meanwhile the request waits for its caller; its time is counted from then on."""
        if not self._limit.is_open_aside:
            raise Overloaded
        self._limit.step_aside()
        try:
            yield
        finally:
            self._since = self._limit.step_back()

    @property
    def is_crowded(self) -> bool:
        """Whether others took the room while it stood aside."""
        return self._limit.is_exceeded


@contextmanager
def aside(scope: Mapping[str, Any]) -> Iterator[None]:
    """Meanwhile the request of this scope waits for its caller, if it is counted at all."""
    visit: Visit | None = scope.get(VISIT)
    if visit is None:
        yield
        return
    with visit.aside():
        yield


def is_crowded(scope: Mapping[str, Any]) -> bool:
    """Whether others took the room of this scope's request while it stood aside."""
    visit: Visit | None = scope.get(VISIT)
    return visit is not None and visit.is_crowded


Answers = tuple[str, str, int | None]  # route, method and status


class RequestTally:
    """What the metrics will be told at the end of the turn."""

    def __init__(self, metrics: Metrics, limit: ConcurrencyLimit) -> None:
        self._metrics = metrics
        self._limit = limit
        self._seconds: defaultdict[Answers, list[float]] = defaultdict(list)
        self._is_due = False

    def add(self, route: str, method: str, status: int | None, seconds: float) -> None:
        """A request is over that took so long; no status if it was not answered."""
        self._seconds[route, method, status].append(seconds)
        self.tell_soon()

    def tell_soon(self) -> None:
        """There is something to tell, if only that a request came in or went."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_due = False
        self._metrics.requests_in_flight.set(self._limit.in_flight + self._limit.aside)
        for answers, seconds in self._seconds.items():
            self._metrics.observe_requests(*answers, seconds)
        self._seconds.clear()
