"""Training processes shared among experiments: the order of jobs, and the effect of long ones."""

import asyncio
from threading import Event
from typing import Any

import pytest

from service.learning.jobs.job import JobFailed, JobOverran, JobRunner, RunnerClosed
from service.learning.jobs.queue import JobQueue
from tests.support.waiting import PATIENCE_SECONDS, eventually

DEADLINE_SECONDS = 900.0


class FakeRunner:
    """Runs nothing; is only known by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False

    def train(self, job: Any, deadline_seconds: float) -> Any:
        raise AssertionError

    def judge(self, job: Any, deadline_seconds: float) -> Any:
        raise AssertionError

    def close(self) -> None:
        self.is_closed = True


class Bench:
    """A queue over fake runners, a clock that jobs move, and a note of what began where."""

    def __init__(self, runners: int = 1) -> None:
        self.now = 0.0
        self.begun: list[tuple[str, str]] = []
        self.waiting: list[int] = []
        self.runners = [FakeRunner(f"p{number}") for number in range(runners)]
        self.queue = JobQueue(
            list[JobRunner](self.runners),
            DEADLINE_SECONDS,
            self.waiting.append,
            clock=lambda: self.now,
        )

    def submit(
        self,
        owner: str,
        seconds: float = 1.0,
        expected: float | None = None,
        until: Event | None = None,
    ) -> "asyncio.Future[Any]":
        """A job of this duration, which ends when the test allows it."""

        def work(runner: Any, deadline: float) -> str:
            self.begun.append((owner, runner.name))
            if until is not None:
                assert until.wait(PATIENCE_SECONDS)
            self.now += seconds
            if seconds > deadline:
                raise JobOverran(deadline)
            return owner

        return self.queue.submit(owner, work, seconds if expected is None else expected)

    @property
    def order(self) -> list[str]:
        return [owner for owner, _ in self.begun]


async def has_begun(bench: Bench, count: int) -> None:
    await eventually(lambda: len(bench.begun) >= count)


async def test_a_job_gives_its_result():
    assert await Bench().submit("a") == "a"


async def test_the_experiment_that_used_least_goes_first():
    bench, gate = Bench(), Event()
    jobs = [bench.submit("greedy", seconds=8, until=gate)]
    await has_begun(bench, 1)
    jobs += [bench.submit("greedy", seconds=8), bench.submit("modest"), bench.submit("greedy")]
    jobs += [bench.submit("modest"), bench.submit("modest")]
    gate.set()
    await asyncio.gather(*jobs)
    assert bench.order == ["greedy", "modest", "modest", "modest", "greedy", "greedy"]


async def test_of_equals_the_shorter_job_goes_first():
    bench, gate = Bench(), Event()
    jobs = [bench.submit("first", until=gate)]
    await has_begun(bench, 1)
    jobs += [bench.submit("long", seconds=9), bench.submit("short", seconds=2)]
    gate.set()
    await asyncio.gather(*jobs)
    assert bench.order == ["first", "short", "long"]


async def test_idle_time_gives_no_credit():
    bench, gate = Bench(), Event()
    await bench.submit("worker", seconds=5)
    running = bench.submit("worker", seconds=5, until=gate)
    await has_begun(bench, 2)
    jobs = [bench.submit("late", seconds=3), bench.submit("late", seconds=3)]
    jobs += [bench.submit("worker", seconds=4)]
    gate.set()
    await asyncio.gather(running, *jobs)
    assert bench.order == ["worker", "worker", "late", "late", "worker"]


async def test_a_long_job_never_holds_up_all_processes():
    bench, gate = Bench(runners=2), Event()
    poison = [bench.submit(f"poison-{n}", seconds=600, until=gate) for n in range(10)]
    await has_begun(bench, 1)
    for _ in range(5):
        assert await bench.submit("healthy") == "healthy"
    assert bench.begun[0] == ("poison-0", "p0")
    assert bench.begun[1:] == [("healthy", "p1")] * 5
    assert bench.waiting[-1] == 9
    gate.set()
    await asyncio.gather(*poison)


async def test_short_jobs_do_not_hold_up_quick_ones():
    bench, gate = Bench(runners=3), Event()
    poison = [bench.submit("long", seconds=600, until=gate)]
    poison += [bench.submit(f"short-{n}", seconds=9, until=gate) for n in range(3)]
    await has_begun(bench, 2)
    for _ in range(5):
        assert await bench.submit("healthy") == "healthy"
    assert bench.begun[2:] == [("healthy", "p2")] * 5
    assert bench.waiting[-1] == 2
    gate.set()
    await asyncio.gather(*poison)


async def test_a_job_that_only_seemed_short_is_run_again_where_long_ones_are():
    bench = Bench(runners=2)
    assert await bench.submit("liar", seconds=600, expected=1) == "liar"
    assert bench.begun == [("liar", "p1"), ("liar", "p0")]
    bench.begun.clear()
    assert await bench.submit("liar", seconds=600, expected=1) == "liar"
    assert bench.begun == [("liar", "p0")], "what it took the last time is what is expected"


async def test_a_job_that_overruns_the_deadline_fails():
    with pytest.raises(JobOverran, match="900"):
        await Bench(runners=2).submit("endless", seconds=901)


@pytest.mark.parametrize("error", [JobFailed("why"), RunnerClosed("the end"), ValueError("a bug")])
async def test_what_is_raised_is_logged_and_the_next_job_goes_on(error: Exception):
    bench = Bench()

    def work(runner: Any, deadline: float) -> None:
        raise error

    with pytest.raises(type(error)):
        await bench.queue.submit("a", work, 1.0)
    assert await bench.submit("b") == "b"


async def test_a_job_that_is_taken_back_is_not_run():
    bench, gate = Bench(), Event()
    first = bench.submit("first", until=gate)
    await has_begun(bench, 1)
    unwanted, wanted = bench.submit("unwanted"), bench.submit("wanted")
    assert bench.queue.is_running(first)
    assert not bench.queue.is_running(unwanted)
    unwanted.cancel()
    gate.set()
    await asyncio.gather(first, wanted)
    assert bench.order == ["first", "wanted"]


async def test_closing_ends_the_runners_and_what_waits():
    bench, gate = Bench(runners=2), Event()
    running = bench.submit("a", seconds=100, until=gate)
    await has_begun(bench, 1)
    waiting = bench.submit("b", seconds=100)
    bench.queue.close()
    assert [each.is_closed for each in bench.runners] == [True, True]
    assert waiting.cancelled()
    gate.set()
    assert await running == "a"
