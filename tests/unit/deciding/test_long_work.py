"""Few long requests are worked on at a time, their slices alternate, and their memory is given back."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from service.deciding import long_work
from service.deciding.long_work import LongWork
from service.errors import Overloaded
from tests.support.waiting import PATIENCE_SECONDS, eventually


def slices(name: str, count: int, order: list[str]) -> Iterator[int]:
    for number in range(count):
        order.append(name)
        yield number


async def test_slices_of_two_requests_alternate_outside_the_event_loop():
    work, order, threads = LongWork(), list[str](), set[int]()

    def noted(name: str) -> Iterator[int]:
        for each in slices(name, 5, order):
            threads.add(threading.get_ident())
            yield each

    found = await asyncio.gather(work.all(noted("a")), work.all(noted("b")))
    assert [*found] == [list(range(5))] * 2
    assert order == ["a", "b"] * 5
    assert threads.isdisjoint({threading.get_ident()})
    work.close()


async def test_a_request_comes_between_two_slices_of_another():
    work, order = LongWork(), list[str]()
    long = asyncio.create_task(work.all(slices("long", 100, order)))
    await work.run(lambda: order.append("other"))
    assert 0 <= order.index("other") <= 2
    await long
    work.close()


async def test_few_requests_are_worked_on_at_a_time():
    work, may_end = LongWork(), asyncio.Event()
    inside = most = 0

    async def request() -> None:
        nonlocal inside, most
        async with work.admitted():
            inside += 1
            most = max(most, inside)
            await may_end.wait()
            inside -= 1

    requests = [asyncio.create_task(request()) for _ in range(2 * long_work.AT_ONCE)]
    await eventually(lambda: inside == long_work.AT_ONCE)
    may_end.set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*requests)
    assert most == long_work.AT_ONCE
    work.close()


async def test_more_than_may_wait_are_refused():
    work, may_end = LongWork(), asyncio.Event()

    async def request() -> None:
        async with work.admitted():
            await may_end.wait()

    most = long_work.AT_ONCE + long_work.MOST_WAITING
    requests = [asyncio.create_task(request()) for _ in range(most)]
    await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await request()
    may_end.set()
    await asyncio.gather(*requests)
    work.close()


async def test_memory_is_given_back_some_time_after_the_last_long_request(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(long_work, "REST_SECONDS", 0.01)
    given_back = list[int]()
    work = LongWork(lambda: given_back.append(threading.get_ident()))
    async with work.admitted():
        pass
    await eventually(lambda: len(given_back) == 1)
    assert given_back != [threading.get_ident()]
    work.close()


async def test_what_fails_in_a_slice_fails_its_request_alone():
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("no")

    work = LongWork()
    with pytest.raises(ValueError, match="no"):
        await work.all(broken())
    assert await work.all(iter([1, 2])) == [1, 2]
    work.close()
