"""One open-loop generator: sends each request when it is due, regardless of earlier ones."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from loadtest.arrivals import Arrivals, Segment, Share, Times, due_times
from loadtest.http_client import Answer, OnAnswer
from loadtest.request_counts import RequestCounts
from loadtest.traffic import Request, Traffic

TICK = 0.001  # the event loop's timers are no finer


@dataclass(frozen=True, slots=True)
class Load:
    """What to send, and from when on; `start` is a time of the machine's monotonic clock."""

    segments: tuple[Segment, ...]
    arrivals: Arrivals = Arrivals.POISSON
    seed: int = 1
    start: float = 0.0

    @property
    def seconds(self) -> int:
        """How long it takes."""
        return sum(segment.seconds for segment in self.segments)

    def due(self, share: Share) -> Times:
        """When the requests of one of the generators are due, from the start on."""
        return due_times(self.segments, self.arrivals, self.seed, share)


class Client(Protocol):
    """What a generator needs of a client."""

    def send(self, request: bytes, on_answer: OnAnswer, on_sent: Callable[[], None]) -> None:
        """Send a request; the callbacks get the time of sending and the answer."""


class Generator:
    """Plays loads with one client. Latency counts from the due time: no coordinated omission."""

    def __init__(
        self,
        client: Client,
        traffic: Traffic,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._traffic = traffic
        self._clock = clock
        self._sleep = sleep
        self._unanswered = 0

    async def play(self, load: Load, share: Share) -> RequestCounts:
        """Send everything, however late, and wait for every answer."""
        counts = RequestCounts()
        for due in load.due(share).tolist():
            await self._sleep_until(load.start + due)
            self._send(counts, load.start, due)
        while self._unanswered:
            await self._sleep(TICK)
        return counts

    async def _sleep_until(self, moment: float) -> None:
        while (left := moment - self._clock()) > 0:
            # Rounded up: a little late is counted, early would flatter.
            await self._sleep(math.ceil(left / TICK) * TICK)

    def _send(self, counts: RequestCounts, start: float, due: float) -> None:
        request = self._traffic.next()
        counts.note_due(due)
        self._unanswered += 1
        self._client.send(
            request.content,
            partial(self._on_answer, counts, start, due, request),
            lambda: counts.note_sent(self._clock() - start - due),
        )

    def _on_answer(
        self, counts: RequestCounts, start: float, due: float, request: Request, answer: Answer
    ) -> None:
        counts.note_answer(due, self._clock() - start, request.kind, answer)
        self._traffic.understand(request, answer)
        self._unanswered -= 1
