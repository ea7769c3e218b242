"""Work that begins at once: over where nothing is waited for, a task of the rest where something is."""

import asyncio

import pytest

from service.deciding import eager


async def test_what_waits_for_nothing_is_over_and_needs_no_task():
    done = []

    async def work() -> None:
        done.append("begun")

    assert eager.begin(work()) is None
    assert done == ["begun"]


async def test_what_waits_goes_on_in_a_task_for_as_often_as_it_waits():
    done = []

    async def work() -> None:
        done.append("begun")
        await asyncio.sleep(0)
        done.append(await answer)
        await asyncio.sleep(0)
        done.append("over")

    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    rest = eager.begin(work())
    assert rest is not None
    assert done == ["begun"]
    await asyncio.sleep(0)
    answer.set_result("answered")
    await rest
    assert done == ["begun", "answered", "over"]


async def test_what_went_wrong_while_it_waited_is_the_works_to_take():
    taken = []

    async def work() -> None:
        try:
            await answer
        except OSError as error:
            taken.append(error)
        await asyncio.sleep(0)

    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    rest = eager.begin(work())
    assert rest is not None
    error = OSError()
    answer.set_exception(error)
    await rest
    assert taken == [error]


async def test_what_is_not_taken_ends_the_task():
    async def work() -> None:
        await asyncio.sleep(0)
        raise OSError

    rest = eager.begin(work())
    assert rest is not None
    with pytest.raises(OSError):  # noqa: PT011 - it is the one above
        await rest


async def test_a_cancelled_task_cancels_the_work():
    ended = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("ended")

    rest = eager.begin(work())
    assert rest is not None
    await asyncio.sleep(0)
    rest.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rest
    assert ended == ["ended"]
