"""One timer for many futures."""

import asyncio

import pytest

from service.storage.drivers.deadlines import Deadlines
from tests.support.waiting import PATIENCE_SECONDS


class Late(Exception):  # noqa: N818 - not the error of the test's own patience
    pass


async def test_who_waits_too_long_is_given_up_and_nobody_else():
    deadlines = Deadlines(0.02, Late)
    loop = asyncio.get_running_loop()
    late, quick, cancelled = (loop.create_future() for _ in range(3))
    for future in (quick, late, cancelled):
        deadlines.watch(future)
    quick.set_result("quick")
    cancelled.cancel()
    with pytest.raises(Late):
        await asyncio.wait_for(late, PATIENCE_SECONDS)
    assert await quick == "quick"
    assert cancelled.cancelled()


async def test_each_has_its_own_time():
    deadlines = Deadlines(0.02, Late)
    loop = asyncio.get_running_loop()
    ends: list[float] = []
    started = loop.time()
    for _ in range(2):
        future = loop.create_future()
        deadlines.watch(future)
        with pytest.raises(Late):
            await asyncio.wait_for(future, PATIENCE_SECONDS)
        ends.append(loop.time() - started)
    assert ends[0] >= 0.02
    assert ends[1] >= 0.04


async def test_who_came_while_others_waited_is_given_up_too():
    deadlines = Deadlines(0.05, Late)
    loop = asyncio.get_running_loop()
    first, second = loop.create_future(), loop.create_future()
    deadlines.watch(first)
    loop.call_later(0.025, deadlines.watch, second)
    for future in (first, second):
        with pytest.raises(Late):
            await asyncio.wait_for(future, PATIENCE_SECONDS)


async def test_those_who_are_done_are_not_kept():
    deadlines = Deadlines(3600, Late)
    loop = asyncio.get_running_loop()
    for _ in range(100):
        future = loop.create_future()
        deadlines.watch(future)
        future.set_result(None)
    assert len(deadlines._waiting) == 1
    assert deadlines._timer is not None
    deadlines._timer.cancel()
