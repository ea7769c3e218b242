"""The group commit alone, with a committer that the test holds in its hand."""

import asyncio
from collections.abc import Sequence

import pytest

from service.errors import InvalidRequest, Overloaded, ServiceError, StorageUnavailable
from service.storage.events.group_commit import CommitOptions, GroupCommit
from tests.support.storage import outcome, running
from tests.support.waiting import eventually


class Committer:
    """Commits on command; answers each call with itself, or with `answers`."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.answers: dict[str, ServiceError] = {}
        self.failures: list[ServiceError] = []
        self.poison: str | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, calls: Sequence[str]) -> list[str | ServiceError]:
        self.batches.append(list(calls))
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop()
        if self.poison in calls:
            raise InvalidRequest
        return [self.answers.get(call, call) for call in calls]


@pytest.fixture
async def committer() -> Committer:
    return Committer()


@pytest.fixture
async def group(committer: Committer) -> GroupCommit[str, str]:
    return GroupCommit(committer, CommitOptions(max_batch=4, max_waiting=8, timeout_seconds=30))


async def test_calls_that_wait_together_are_committed_together(
    group: GroupCommit[str, str], committer: Committer
):
    async with running(group.run()):
        names = [str(number) for number in range(6)]
        assert await asyncio.gather(*(group.submit(name) for name in names)) == names
    assert committer.batches == [["0", "1", "2", "3"], ["4", "5"]]


async def test_a_call_larger_than_a_batch_goes_alone(
    group: GroupCommit[str, str], committer: Committer
):
    async with running(group.run()):
        await asyncio.gather(group.submit("a"), group.submit("b", 5), group.submit("c"))
    assert committer.batches == [["a"], ["b"], ["c"]]


async def test_each_caller_gets_its_own_answer(group: GroupCommit[str, str], committer: Committer):
    committer.answers["b"] = InvalidRequest()
    async with running(group.run()):
        results = await asyncio.gather(*(outcome(group.submit(name)) for name in "abc"))
    assert [results[0], type(results[1]), results[2]] == ["a", InvalidRequest, "c"]


async def test_a_storage_failure_reaches_the_batch_and_no_other(
    group: GroupCommit[str, str], committer: Committer
):
    committer.failures.append(StorageUnavailable())
    async with running(group.run()):
        results = await asyncio.gather(*(outcome(group.submit(name)) for name in "abcdef"))
    assert [type(each) for each in results] == [StorageUnavailable] * 4 + [str, str]


async def test_a_call_that_cannot_be_stored_fails_alone(
    group: GroupCommit[str, str], committer: Committer
):
    committer.poison = "b"
    async with running(group.run()):
        results = await asyncio.gather(*(outcome(group.submit(name)) for name in "abc"))
    assert [type(each) for each in results] == [str, InvalidRequest, str]


async def test_a_full_queue_refuses(group: GroupCommit[str, str]):
    waiting = [asyncio.create_task(group.submit(str(number))) for number in range(8)]
    await eventually(lambda: group.waiting_count == 8)
    with pytest.raises(Overloaded):
        await group.submit("one too many")
    await group.close()
    assert len(await asyncio.gather(*waiting)) == 8


async def test_a_caller_cancelled_while_waiting_takes_its_call_back(
    group: GroupCommit[str, str], committer: Committer
):
    gone, stays = (asyncio.create_task(group.submit(name)) for name in ("gone", "stays"))
    await eventually(lambda: group.waiting_count == 2)
    gone.cancel()
    await asyncio.wait({gone})
    async with running(group.run()):
        assert await stays == "stays"
    assert committer.batches == [["stays"]]
    assert group.waiting_count == 0


async def test_a_caller_cancelled_during_the_commit_does_not_disturb_the_batch(
    group: GroupCommit[str, str], committer: Committer
):
    committer.gate.clear()
    async with running(group.run()):
        gone, stays = (asyncio.create_task(group.submit(name)) for name in ("gone", "stays"))
        await eventually(lambda: bool(committer.batches))
        gone.cancel()
        await asyncio.wait({gone})
        committer.gate.set()
        assert await stays == "stays"
    assert committer.batches == [["gone", "stays"]]


async def test_a_caller_waits_no_longer_than_it_must(committer: Committer):
    group: GroupCommit[str, str] = GroupCommit(committer, CommitOptions(timeout_seconds=0.05))
    committer.gate.clear()
    async with running(group.run()):
        with pytest.raises(StorageUnavailable):
            await group.submit("a")
        committer.gate.set()
        assert await group.submit("b") == "b"


async def test_closing_commits_what_waits_and_ends_the_run(
    group: GroupCommit[str, str], committer: Committer
):
    committer.gate.clear()
    run = asyncio.create_task(group.run())
    calls = [asyncio.create_task(group.submit(str(number))) for number in range(6)]
    await eventually(lambda: bool(committer.batches))
    closing = asyncio.create_task(group.close())
    committer.gate.set()
    await asyncio.gather(closing, run)
    assert len(await asyncio.gather(*calls)) == 6
    with pytest.raises(StorageUnavailable):
        await group.submit("late")


async def test_closing_drains_even_when_the_flusher_is_gone(
    group: GroupCommit[str, str], committer: Committer
):
    committer.gate.clear()
    async with running(group.run()):
        caught = asyncio.create_task(outcome(group.submit("in flight")))
        await eventually(lambda: bool(committer.batches))
        waiting = asyncio.create_task(group.submit("waiting"))
        await eventually(lambda: group.waiting_count == 1)
    committer.gate.set()
    await group.close()
    assert isinstance(await caught, StorageUnavailable)
    assert await waiting == "waiting"


async def test_batches_are_observed(committer: Committer):
    seen: list[tuple[int, int]] = []
    group: GroupCommit[str, str] = GroupCommit(
        committer,
        CommitOptions(max_batch=5),
        on_batch=lambda count, waiting, seconds: seen.append((count, waiting)),
    )
    async with running(group.run()):
        await asyncio.gather(group.submit("a", 2), group.submit("b", 3), group.submit("c", 4))
    assert seen == [(5, 9), (4, 4)]
