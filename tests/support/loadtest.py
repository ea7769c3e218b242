"""Time and a service that a test holds in its hand, for the load tests' own tests."""

import asyncio
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loadtest.arrivals import Share
from loadtest.bench import Bench, Stage, Traits
from loadtest.generator import Generator, Load
from loadtest.generators import Played
from loadtest.http_client import Answer, OnAnswer
from loadtest.request_counts import Second
from loadtest.sampling import Sampler
from loadtest.service_under_test import ServiceUnderTest
from loadtest.traffic import Caller, Traffic, Workload
from service.http.concurrency_limit import ConcurrencyLimit, LoadLimits


class VirtualTime:
    """A clock that advances when a task sleeps, and runs due callbacks on the way.

    `oversleeps`: a sleeper wakes so much later than it asked, as on a machine that is too busy.
    """

    def __init__(self, oversleeps: float = 0.0) -> None:
        self.now = 0.0
        self._oversleeps = oversleeps
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def clock(self) -> float:
        return self.now

    def at(self, moment: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, (moment, next(self._numbers), work))

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds + self._oversleeps)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            self.now, _, work = heapq.heappop(self._due)
            work()
        self.now = end


class StallingService:
    """Answers at once, but for one stall: what comes during it is answered at its end."""

    def __init__(self, time: VirtualTime, start: float, end: float) -> None:
        self._time = time
        self._start, self._end = start, end

    def send(self, request: bytes, on_answer: OnAnswer, on_sent: Callable[[], None]) -> None:
        on_sent()
        now = self._time.now
        answered = self._end if self._start <= now < self._end else now
        body = b'{"source": {"decision_id": "00", "arm": "arm-1"}}'
        self._time.at(answered, lambda: on_answer(Answer("200", body)))


def stage_of(latencies: Sequence[Sequence[float]], rate: float = 10.0, refused: int = 0) -> Stage:
    """A stage with these good answers in its seconds, and refusals in its first."""
    series = []
    for second in latencies:
        made = Second(due=len(second), outcomes=Counter({("select", "200"): len(second)}))
        for latency in second:
            made.good.record(latency)
        series.append(made)
    series[0].due += refused
    series[0].outcomes["select", "503"] += refused
    return Stage("stage", rate, 0.0, series, Second()).after(0)


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of the one processor that a simulated service has, and of patience."""

    answer: float = 0.002
    refusal: float = 0.00012
    patience: float = 5.0


class SimulatedService:
    """One processor that works off requests in their order, and refuses what the limit says."""

    def __init__(self, time: VirtualTime, limits: LoadLimits, costs: Costs) -> None:
        self._time = time
        self._costs = costs
        self._limit = ConcurrencyLimit(limits, time.clock)
        self._free_at = 0.0

    def send(self, request: bytes, on_answer: OnAnswer, on_sent: Callable[[], None]) -> None:
        on_sent()
        came = self._time.now
        is_taken = self._limit.is_open
        cost = self._costs.answer if is_taken else self._costs.refusal
        entered = self._limit.enter() if is_taken else None
        self._free_at = max(self._free_at, came) + cost

        def end() -> None:
            if entered is not None:
                self._limit.leave(entered)
            on_answer(self._answer(is_taken, self._time.now - came))

        self._time.at(self._free_at, end)

    def _answer(self, is_taken: bool, seconds: float) -> Answer:
        if seconds > self._costs.patience:
            return Answer("timeout")
        if not is_taken:
            return Answer("503", has_retry_after=True)
        return Answer("200", b'{"source": {"decision_id": "00", "arm": "arm-1"}}')


class SimulatedPlayer:
    """Plays loads against a simulated service in virtual time."""

    def __init__(self, limits: LoadLimits, costs: Costs | None = None) -> None:
        self._time = VirtualTime()
        service = SimulatedService(self._time, limits, costs or Costs())
        traffic = Traffic(Workload(), Caller("http://127.0.0.1:1"), "t", seed=1)
        self._generator = Generator(service, traffic, self._time.clock, self._time.sleep)

    def play(self, load: Load) -> Played:
        started = replace(load, start=self._time.now)
        return Played(started, asyncio.run(self._generator.play(started, Share())), [0.1])

    def acknowledged(self) -> dict[str, set[bytes]]:
        return {}


def simulated_bench(limits: LoadLimits, costs: Costs | None = None) -> Bench:
    service = ServiceUnderTest("http://127.0.0.1:1", "simulated")
    player = SimulatedPlayer(limits, costs)
    return Bench(service, Workload(), player, Sampler({}), Traits())
