"""A run: loads played one after the other against one service, with all that was seen."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from loadtest.arrivals import Arrivals, Segment
from loadtest.generator import Load
from loadtest.generators import Played
from loadtest.request_counts import Second, good_count
from loadtest.sampling import Sampler
from loadtest.service_under_test import ServiceUnderTest
from loadtest.traffic import Workload


@dataclass
class Stage:
    """Some seconds at one rate, and what became of the requests that were due in them."""

    name: str
    rate: float
    start: float  # of the machine's monotonic clock
    series: list[Second]
    whole: Second

    @property
    def seconds(self) -> int:
        """How long it took."""
        return len(self.series)

    @property
    def end(self) -> float:
        """Of the machine's monotonic clock."""
        return self.start + self.seconds

    @property
    def offered(self) -> float:
        """Requests that were due, a second."""
        return self.whole.due / self.seconds

    @property
    def goodput(self) -> float:
        """Requests that got what they asked for, a second."""
        return good_count(self.whole) / self.seconds

    @property
    def error_count(self) -> int:
        """Requests that did not."""
        return self.whole.due - good_count(self.whole)

    @property
    def p99(self) -> float:
        """Of the good ones, in seconds."""
        return self.whole.good.quantile(0.99) if self.whole.good.total else math.inf

    def after(self, seconds: int) -> "Stage":
        """The same without its first seconds."""
        rest, whole = self.series[seconds:], Second()
        for second in rest:
            whole.merge(second)
        return Stage(self.name, self.rate, self.start + seconds, rest, whole)


@dataclass(frozen=True, slots=True)
class Traits:
    """What all loads of a run have in common."""

    arrivals: Arrivals = Arrivals.POISSON
    seed: int = 1


class Player(Protocol):
    """Plays loads against a service; `Generators`, where it is a real one."""

    def play(self, load: Load) -> Played:
        """Play a load; what became of it."""

    def acknowledged(self) -> dict[str, set[bytes]]:
        """The ids of all events that the service said were durable, by kind."""


class Bench:
    """Plays stages and remembers everything for the report."""

    def __init__(
        self,
        service: ServiceUnderTest,
        workload: Workload,
        player: Player,
        sampler: Sampler,
        traits: Traits,
    ) -> None:
        self.service = service
        self.workload = workload
        self.player = player
        self.sampler = sampler
        self._traits = traits
        self.started = time.monotonic()
        self.stages: list[Stage] = []
        self.runs: list[Played] = []
        self.events: list[tuple[float, str]] = []  # what was done to the service, and when

    def play(self, name: str, rate: float, seconds: int) -> Stage:
        """One stage."""
        return self.play_on([(name, rate, seconds)])[0]

    def play_on(self, parts: Sequence[tuple[str, float, int]]) -> list[Stage]:
        """Stages that follow each other without a pause."""
        segments = tuple(Segment(rate, seconds) for _, rate, seconds in parts)
        seed = self._traits.seed + len(self.runs)
        played = self.player.play(Load(segments, self._traits.arrivals, seed))
        self.runs.append(played)
        stages = _stages([name for name, *_ in parts], played)
        self.stages += stages
        return stages

    def note(self, event: str) -> None:
        """Something was done to the service just now."""
        self.events.append((time.monotonic(), event))


def _stages(names: Sequence[str], played: Played) -> list[Stage]:
    stages, at = [], 0
    for name, segment in zip(names, played.load.segments, strict=True):
        end = at + segment.seconds
        series = [played.counts.during(number, number + 1) for number in range(at, end)]
        whole = played.counts.during(at, end)
        stages.append(Stage(name, segment.rate, played.load.start + at, series, whole))
        at = end
    return stages
