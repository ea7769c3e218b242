"""The open loop, in virtual time: what is measured, and when it is worth nothing."""

import pytest

from loadtest.arrivals import Arrivals, Segment, Share
from loadtest.generator import Generator, Load
from loadtest.generators import Played
from loadtest.request_counts import good_count, outcome_counts
from loadtest.traffic import Caller, Traffic, Workload
from loadtest.validity import Bounds, faults
from tests.support.loadtest import StallingService, VirtualTime

LOAD = Load((Segment(100, 10),), Arrivals.CONSTANT)
NO_STALL = (0.0, 0.0)


async def played(
    stall: tuple[float, float] = NO_STALL, oversleeps: float = 0.0, load: Load = LOAD
) -> Played:
    time = VirtualTime(oversleeps)
    traffic = Traffic(Workload(), Caller("http://127.0.0.1:1"), "t", seed=1)
    generator = Generator(StallingService(time, *stall), traffic, time.clock, time.sleep)
    return Played(load, await generator.play(load, Share()), [0.1])


async def test_a_stall_shows_in_the_percentiles_as_in_theory():
    counts = (await played(stall=(3.0, 4.0))).counts
    good = counts.during(0, 10).good
    # Of 1000 requests the 100 that were due in the stall waited 1 s … 0 s, evenly: the slowest
    # tenth of a tenth waited 0.9 s and more. A closed loop would have seen one slow request.
    assert good.maximum == pytest.approx(1.0, abs=0.02)
    assert good.quantile(0.99) == pytest.approx(0.9, abs=0.02)
    assert good.quantile(0.95) == pytest.approx(0.5, abs=0.02)
    assert good.quantile(0.89) < 0.01


async def test_a_stall_of_the_service_is_no_fault_of_the_generator():
    run = await played(stall=(3.0, 4.0))
    assert run.counts.lag.maximum <= 0.001 + 1e-6
    assert faults([run], Bounds()) == []


async def test_every_request_is_due_sent_and_answered_once():
    counts = (await played()).counts
    whole = counts.during(0, 10)
    assert (whole.due, counts.sent, good_count(whole), whole.good.total) == (1000,) * 4
    assert outcome_counts(whole) == {"200": 1000}
    assert [counts.seconds[second].due for second in range(10)] == [100] * 10


async def test_segments_follow_each_other_without_a_pause():
    load = Load((Segment(10, 2), Segment(50, 3)), Arrivals.CONSTANT)
    counts = (await played(load=load)).counts
    assert [counts.seconds[second].due for second in range(5)] == [10, 10, 50, 50, 50]


async def test_a_generator_that_wakes_late_sends_all_and_makes_the_run_invalid():
    run = await played(oversleeps=0.05)
    assert run.counts.sent == 1000
    (fault,) = faults([run], Bounds(lag_seconds=0.02))
    assert "sent 5" in fault
    assert "20 ms are allowed" in fault
    assert run.counts.during(0, 10).good.quantile(0.99) > 0.045, "its lateness is in the latency"


async def test_a_saturated_generator_makes_the_run_invalid():
    run = await played()
    run.cpu_shares = [0.2, 0.97]
    assert faults([run], Bounds()) == ["at 100/s: a generator took 97% of a core"]


async def test_an_answer_that_was_not_counted_makes_the_run_invalid():
    run = await played()
    del run.counts.seconds[3].outcomes["select", "200"]
    assert faults([run], Bounds()) == ["at 100/s: 1000 requests due, 1000 sent, 900 answered"]
