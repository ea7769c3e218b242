"""How many requests may be at work at once, so that none waits long in line.

Little's law: requests at work = requests answered a second × the time that each takes. When even
the fastest request took longer than it should, for half a second on end, a line stands in front
of everyone, and the number that may be at work is cut to what would be answered in time. A burst, a
pause of the process or a few long requests do not do that: somebody is fast in between. While all
is well the number grows again, slowly.

A request is at work while it costs us something. One that waits for its caller to send the rest of
its body stands aside: callers that are slow on purpose keep nobody else out.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

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
