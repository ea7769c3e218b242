"""Calls whose callers were answered before: bounded, kept through outages, written in order.

All in virtual time.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import pytest

from service.errors import ExperimentPaused, InvalidRequest, ServiceError, StorageUnavailable
from service.storage.events.group_commit import CommitOptions, GroupCommit
from tests.support.storage import outcome, running
from tests.support.virtual_time import run_virtually
from tests.support.waiting import eventually

BOUND = 6
OPTIONS = CommitOptions(
    max_batch=4, timeout_seconds=0.8, linger_seconds=0.01, relaxed_bound=BOUND, drain_seconds=20
)


class Store:
    """A database that is away, or hangs, at certain times, and remembers what it was sent and holds.

    A call that is sent again has `+` behind it.
    """

    def __init__(self) -> None:
        self.away_until = 0.0
        self.failing_attempts: set[int] = set()  # the first is 1
        self.hung = asyncio.Event()
        self.hung.set()
        self.refusals: dict[str, ServiceError] = {}
        self.poison: str | None = None
        self.attempts: list[tuple[float, list[str]]] = []
        self.written: list[str] = []
        self.lost: list[tuple[str, str]] = []
        self.unwritten: list[int] = []
        self.group: GroupCommit[str, str] = GroupCommit(
            self.commit, OPTIONS, repeat=lambda call: call + "+", on_unwritten=self.unwritten.append
        )

    async def commit(self, calls: Sequence[str]) -> list[str | ServiceError]:
        now = asyncio.get_running_loop().time()
        self.attempts.append((round(now, 3), list(calls)))
        await self.hung.wait()
        if now < self.away_until or len(self.attempts) in self.failing_attempts:
            raise StorageUnavailable
        if self.poison in [call.rstrip("+") for call in calls]:
            raise InvalidRequest
        results = [self.refusals.get(call, call) for call in calls]
        self.written += [each.rstrip("+") for each in results if isinstance(each, str)]
        return results

    def relax(self, *names: str) -> None:
        """Answer calls of one event each, to be written later."""
        for name in names:
            self.group.submit_later(name, 1, partial(self._lose, name))

    def _lose(self, name: str, error: ServiceError) -> None:
        self.lost.append((name, error.slug))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The queue is worked on meanwhile."""
        async with running(self.group.run()):
            yield

    async def until_written(self) -> None:
        await eventually(lambda: not self.group.unwritten_count)


def virtual(test: Callable[[Store], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Run a test's coroutine in virtual time, with a store of its own."""

    async def play() -> None:
        await test(Store())

    def run() -> None:
        run_virtually(play())

    return run


@virtual
async def test_they_are_written_together_after_a_moment(store: Store):
    async with store.running():
        store.relax("a", "b")
        assert store.group.unwritten_count == 2
        await store.until_written()
    assert store.attempts == [(0.01, ["a", "b"])]
    assert (store.written, store.lost) == (["a", "b"], [])


@virtual
async def test_no_more_than_the_bound_is_unwritten_waiting_and_under_way_together(store: Store):
    async with store.running():
        store.hung.clear()
        store.relax("a", "b", "c", "d")  # a batch
        await asyncio.sleep(0.1)
        assert store.attempts == [(0, ["a", "b", "c", "d"])]
        assert store.group.can_submit_later(2)
        assert not store.group.can_submit_later(3)
        store.relax("e", "f")
        assert not store.group.can_submit_later(1)
        store.hung.set()
        await store.until_written()
        assert store.group.can_submit_later(BOUND)
        assert not store.group.can_submit_later(BOUND + 1)
    assert store.written == list("abcdef")


@virtual
async def test_what_could_not_be_written_is_tried_again_less_and_less_often(store: Store):
    store.away_until = 5.0
    async with store.running():
        store.relax("a", "b")
        await store.until_written()
    moments = [moment for moment, _ in store.attempts]
    pauses = [round(b - a, 3) for a, b in pairwise(moments)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0]
    assert (store.written, store.lost) == (["a", "b"], [])


@virtual
async def test_they_are_sent_again_as_calls_that_may_be_there_already(store: Store):
    store.away_until = 0.02
    async with store.running():
        store.relax("a", "b")
        await store.until_written()
    assert store.attempts[0][1] == ["a", "b"]
    assert store.attempts[1][1] == ["a+", "b+"]


@virtual
async def test_while_the_database_is_away_nothing_more_is_answered_first(store: Store):
    store.away_until = 1.0
    async with store.running():
        store.relax("a")
        assert store.group.can_submit_later(1)
        await asyncio.sleep(0.5)
        assert not store.group.can_submit_later(1)
        await store.until_written()
        assert store.group.can_submit_later(1)


@virtual
async def test_waiters_get_the_outage_and_answered_decisions_are_kept(store: Store):
    store.away_until = 1.0
    async with store.running():
        store.relax("a")
        waiting = asyncio.create_task(outcome(store.group.submit("b")))
        assert isinstance(await waiting, StorageUnavailable)
        assert store.group.unwritten_count == 1
        await store.until_written()
    assert store.written == ["a"]


@virtual
async def test_a_request_after_the_outage_does_not_wait_for_the_next_try(store: Store):
    store.away_until = 3.0
    async with store.running():
        store.relax("a", "b")
        await asyncio.sleep(3.01)
        tries = len(store.attempts)
        assert await store.group.submit("c") == "c"
        assert asyncio.get_running_loop().time() < 3.02
    assert len(store.attempts) == tries + 1
    assert store.written == ["a", "b", "c"]


@virtual
async def test_order_is_kept_over_several_batches(store: Store):
    store.hung.clear()
    async with store.running():
        store.relax("a", "b", "c", "d")
        await asyncio.sleep(0.1)
        store.relax("e", "f")
        rewarded = asyncio.create_task(store.group.submit("g"))
        store.away_until = 0.5
        store.hung.set()
        assert await rewarded == "g"
        await store.until_written()
    assert store.written == list("abcdefg")


@virtual
async def test_a_refused_one_is_lost_alone_and_reported(store: Store):
    store.refusals["b"] = ExperimentPaused()
    async with store.running():
        store.relax("a", "b", "c")
        await store.until_written()
    assert (store.written, store.lost) == (["a", "c"], [("b", "experiment-paused")])
    assert store.unwritten == [3, 0]


@virtual
async def test_what_cannot_be_stored_is_lost_alone(store: Store):
    store.poison = "b"
    async with store.running():
        store.relax("a", "b", "c")
        await store.until_written()
    assert (store.written, store.lost) == (["a", "c"], [("b", "invalid-request")])


@virtual
async def test_an_outage_while_calls_are_written_one_by_one_keeps_their_order(store: Store):
    store.poison = "b"
    store.failing_attempts = {2}
    async with store.running():
        store.relax("a", "b", "c")
        await store.until_written()
    sent = [calls for _, calls in store.attempts]
    assert sent[:3] == [["a", "b", "c"], ["a"], ["a+", "b+", "c+"]]
    assert (store.written, store.lost) == (["a", "c"], [("b", "invalid-request")])


@virtual
async def test_closing_goes_on_until_the_database_is_back(store: Store):
    store.away_until = OPTIONS.drain_seconds - 2
    async with store.running():
        store.relax("a", "b")
        await store.group.close()
    assert (store.written, store.lost) == (["a", "b"], [])


@virtual
async def test_closing_gives_up_in_the_end_and_tells_what_is_lost(store: Store):
    store.away_until = 1000.0
    async with store.running():
        store.relax("a", "b")
        await store.group.close()
        assert asyncio.get_running_loop().time() == pytest.approx(OPTIONS.drain_seconds)
    assert store.written == []
    assert store.lost == [("a", "storage-unavailable"), ("b", "storage-unavailable")]
    assert (store.group.unwritten_count, store.unwritten[-1]) == (0, 0)


@virtual
async def test_what_a_database_that_hangs_has_in_hand_at_the_end_is_lost_once(store: Store):
    store.hung.clear()
    async with store.running():
        store.relax("a", "b")
        await asyncio.sleep(0.1)
        store.relax("c")
        await store.group.close()
        assert [name for name, _ in store.lost] == ["c"]  # a and b may still be written
    assert [name for name, _ in store.lost] == ["c", "a", "b"]
    assert store.group.unwritten_count == 0


@virtual
async def test_closing_writes_what_a_cancelled_task_had_in_hand(store: Store):
    store.hung.clear()
    async with store.running():
        store.relax("a", "b")
        await asyncio.sleep(0.1)
    assert store.group.unwritten_count == 2
    store.hung.set()
    await store.group.close()
    assert (store.written, store.lost) == (["a", "b"], [])


@virtual
async def test_closing_does_not_wait_where_nothing_was_answered_first(store: Store):
    store.away_until = 1000.0
    async with store.running():
        waiting = asyncio.create_task(outcome(store.group.submit("a")))
        await asyncio.sleep(0)
        await store.group.close()
        assert asyncio.get_running_loop().time() < 0.1
        assert isinstance(await waiting, StorageUnavailable)


@virtual
async def test_unwritten_ones_are_reported_when_their_number_changes(store: Store):
    async with store.running():
        await store.group.submit("durable")
        assert store.unwritten == []
        store.relax("a", "b", "c")
        await store.until_written()
    assert store.unwritten == [3, 0]
