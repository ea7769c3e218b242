"""The knee: the highest rate that the service keeps up with, found by stepping the rate."""

from collections.abc import Callable
from dataclasses import dataclass

from loadtest.bench import Stage

START_RATE = 25.0
GROWTH = 1.4
HALVINGS = 3  # after the first step that was too much: the knee is known to about 5 %
TRIES = 2
MAX_RATE = 100_000.0
SETTLING_SECONDS = 1  # of a stage, which are not counted


@dataclass(frozen=True, slots=True)
class Promise:
    """What keeping up means: nearly all requests answered well, nearly all of them soon."""

    good_share: float = 0.99
    p99_seconds: float = 0.1

    def is_kept(self, stage: Stage) -> bool:
        """Whether the service kept up."""
        good = stage.goodput >= self.good_share * stage.offered
        return good and stage.p99 <= self.p99_seconds


class NoKneeError(Exception):
    """The service did not keep up even with the lowest rate."""


def find_knee(play: Callable[[float], Stage], promise: Promise) -> Stage:
    """The stage with the highest rate that was kept up with; `play` tries a rate.

    A step that fails is tried once more: something else may have had the machine.
    """

    def kept_at(rate: float) -> Stage | None:
        tries = (play(rate) for _ in range(TRIES))
        return next((stage for stage in tries if promise.is_kept(stage)), None)

    best, too_much = kept_at(START_RATE), START_RATE * GROWTH
    if best is None:
        raise NoKneeError(f"{START_RATE:.0f} requests a second are too much already")
    while too_much < MAX_RATE and (stage := kept_at(too_much)):
        best, too_much = stage, too_much * GROWTH
    for _ in range(HALVINGS):
        middle = (best.rate * too_much) ** 0.5
        if stage := kept_at(middle):
            best = stage
        else:
            too_much = middle
    return best
