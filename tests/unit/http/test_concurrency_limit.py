"""How many requests may be at work, step by step on a clock of the test's own."""

from itertools import pairwise

import pytest

from service.http.concurrency_limit import (
    FLOOR,
    GROWTH,
    INTERVAL_SECONDS,
    STANDING_INTERVALS,
    ConcurrencyLimit,
    LoadLimits,
)
from tests.support.loadtest import VirtualTime

TARGET = 0.1
MOST = 512


class Line:
    """Concurrent requests of equal duration, interval after interval."""

    def __init__(self, most: int = MOST) -> None:
        self.time = VirtualTime()
        self.limit = ConcurrencyLimit(LoadLimits(most, TARGET), self.time.clock)

    def work(self, at_once: int, seconds: float) -> None:
        """One interval of them, and one that takes a moment longer and ends it."""
        entered = [self.limit.enter() for _ in range(at_once)]
        self.time.advance(max(seconds, INTERVAL_SECONDS))
        for each in entered:
            self.limit.leave(max(each, self.time.now - seconds))


def test_it_begins_with_all_that_is_allowed():
    line = Line(most=3)
    for _ in range(3):
        assert line.limit.is_open
        line.limit.enter()
    assert not line.limit.is_open
    line.limit.leave(0.0)
    assert line.limit.is_open


def test_a_standing_line_cuts_the_limit_to_what_is_answered_in_time():
    line = Line()
    for _ in range(STANDING_INTERVALS + 1):
        line.work(400, seconds=0.4)
    assert line.limit.limit == pytest.approx(400 * TARGET / 0.4, abs=1)


def test_a_few_slow_intervals_are_a_pause_and_no_line():
    line = Line()
    for _ in range(5):
        for _ in range(STANDING_INTERVALS - 1):
            line.work(400, seconds=0.4)
        line.work(400, seconds=0.01)
    assert line.limit.limit == MOST


def test_a_few_long_requests_do_not_cut_it():
    line = Line()
    for _ in range(5):
        long = line.limit.enter()
        line.work(100, seconds=0.01)
        line.time.advance(5.0)
        line.limit.leave(long)
        line.work(100, seconds=0.01)
    assert line.limit.limit == MOST


def test_the_limit_has_a_floor_however_slow_all_is():
    line = Line()
    for _ in range(5):
        line.work(FLOOR, seconds=10.0)
    assert line.limit.limit == FLOOR


def test_a_smaller_limit_that_was_asked_for_is_kept():
    line = Line(most=8)
    for seconds in (10.0, 10.0, 10.0, 0.01, 0.01):
        line.work(8, seconds)
    assert line.limit.limit == 8


def test_it_grows_again_while_it_is_needed_and_all_is_well():
    line = Line()
    for _ in range(STANDING_INTERVALS + 2):
        line.work(FLOOR, seconds=10.0)
    grown = []
    for _ in range(3):
        line.work(line.limit.limit, seconds=0.01)
        grown.append(line.limit.limit)
    assert grown[-1] > grown[0] >= FLOOR
    assert {later - earlier for earlier, later in pairwise(grown)} == {GROWTH}
    line.work(5, seconds=0.01)
    line.work(5, seconds=0.01)
    assert line.limit.limit <= grown[-1] + GROWTH, "it does not grow while there is room"
    for _ in range(100):
        line.work(line.limit.limit, seconds=0.01)
    assert line.limit.limit == MOST


def test_a_request_that_waits_for_its_body_takes_no_place():
    limit = Line(most=2).limit
    for _ in range(2):
        limit.enter()
        limit.pause()
    assert limit.is_open
    assert not limit.can_pause
    limit.enter()
    limit.resume()
    assert (limit.is_open, limit.is_exceeded) == (False, False)
    limit.resume()
    assert limit.is_exceeded
    assert limit.can_pause
