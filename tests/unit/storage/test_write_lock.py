"""One writer at a time, in the promised order, whoever gives up."""

import asyncio

import pytest

from service.storage.drivers.write_lock import WriteLock


@pytest.fixture
async def lock() -> WriteLock:
    """A lock that somebody holds."""
    held = WriteLock()
    await held.acquire()
    return held


class Writers:
    """Tasks that note their name once they have the lock, and hold it until it is released for them."""

    def __init__(self, lock: WriteLock) -> None:
        self._lock = lock
        self.had_it: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def wait(self, name: str, *, goes_first: bool = False) -> None:
        self.tasks[name] = asyncio.create_task(self._write(name, goes_first))
        await asyncio.sleep(0)

    async def _write(self, name: str, goes_first: bool) -> None:
        await self._lock.acquire(goes_first=goes_first)
        self.had_it.append(name)

    async def end(self) -> None:
        """The present writer ends; the next one takes over."""
        self._lock.release()
        await asyncio.sleep(0)


async def test_those_that_go_first_pass_the_others_and_keep_their_order(lock: WriteLock):
    writers = Writers(lock)
    for name in ("a", "b"):
        await writers.wait(name)
    for name in ("append 1", "append 2"):
        await writers.wait(name, goes_first=True)
    assert lock.waiting == 4
    for _ in range(4):
        await writers.end()
    assert writers.had_it == ["append 1", "append 2", "a", "b"]
    await writers.end()
    assert not lock.locked()


async def test_another_writer_waits_for_one_append_where_they_come_one_after_the_other(
    lock: WriteLock,
):
    writers = Writers(lock)
    await writers.wait("append 1", goes_first=True)
    await writers.wait("a snapshot")
    await writers.end()
    await writers.end()  # of the append: the next one is sent when this one is answered
    await writers.wait("append 2", goes_first=True)
    assert writers.had_it == ["append 1", "a snapshot"]


@pytest.mark.parametrize("goes_first", [True, False])
async def test_a_waiter_that_gives_up_is_passed_over(lock: WriteLock, goes_first: bool):
    writers = Writers(lock)
    await writers.wait("gives up", goes_first=goes_first)
    await writers.wait("b")
    writers.tasks["gives up"].cancel()
    await asyncio.sleep(0)
    assert lock.waiting == 1
    await writers.end()
    assert writers.had_it == ["b"]


async def test_a_waiter_that_gives_up_as_it_gets_the_lock_hands_it_on(lock: WriteLock):
    writers = Writers(lock)
    await writers.wait("gives up")
    await writers.wait("b")
    lock.release()  # the turn of the first, which has not noticed yet
    writers.tasks["gives up"].cancel()
    await asyncio.wait(writers.tasks.values())
    assert writers.had_it == ["b"]
    await writers.end()
    assert not lock.locked()
