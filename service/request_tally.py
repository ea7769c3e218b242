"""Tells the metrics of requests once in a turn of the event loop.

Metrics are locked, and in several processes written to a file that others read: for all requests of a turn
together that costs a fraction of what it costs for each.
"""

import asyncio
from collections import defaultdict

from service.concurrency_limit import ConcurrencyLimit
from service.metrics import Metrics

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
