"""Coroutines that run at once, and those that have to wait."""

import asyncio

import pytest

from service.http.promptly import Promptly
from tests.support.waiting import PATIENCE_SECONDS


async def soon() -> str:
    return "here"


async def test_what_need_not_wait_is_done_at_once():
    prompt = Promptly(soon())
    assert (prompt.is_done, prompt.result, await prompt) == (True, "here", "here")


async def test_what_must_wait_goes_on_where_it_stopped():
    first, second = asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def late() -> str:
        seen.append("begun")
        await first.wait()
        await second.wait()
        return "late"

    prompt = Promptly(late())
    assert (prompt.is_done, seen) == (False, ["begun"])
    loop = asyncio.get_running_loop()
    loop.call_soon(first.set)
    loop.call_later(0, second.set)
    assert await asyncio.wait_for(prompt, PATIENCE_SECONDS) == "late"
    assert seen == ["begun"]


async def test_a_failure_is_raised_where_it_is_made():
    async def broken() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        Promptly(broken())


async def test_giving_up_ends_the_coroutine():
    ended: list[bool] = []

    async def never() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    prompt = Promptly(never())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await prompt
    assert ended == [True]
