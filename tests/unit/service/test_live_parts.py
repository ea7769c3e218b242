"""Parts of pages that many consoles look at are rendered once for all."""

import asyncio

from service.console.live_parts import MOST, SECONDS, LivePart, LiveParts


class Rendering:
    """Renders part after part, and lets others run meanwhile."""

    def __init__(self) -> None:
        self.count = 0

    async def __call__(self) -> LivePart:
        self.count += 1
        await asyncio.sleep(0)
        return LivePart(f"mark-{self.count}", f"text {self.count}")


async def test_twenty_consoles_at_once_cost_one_rendering():
    parts, render = LiveParts(clock=lambda: 0.0), Rendering()
    found = await asyncio.gather(*(parts.get(("doses", True), render) for _ in range(20)))
    assert render.count == 1
    assert {each.mark for each in found} == {"mark-1"}


async def test_a_part_is_rendered_again_when_it_is_old_forgotten_or_of_others():
    now, render = [0.0], Rendering()
    parts = LiveParts(clock=lambda: now[0])
    assert (await parts.get(("doses", True), render)).mark == "mark-1"
    now[0] = SECONDS
    assert (await parts.get(("doses", True), render)).mark == "mark-2"
    assert (await parts.get(("doses", False), render)).mark == "mark-3"
    parts.forget("doses")
    assert (await parts.get(("doses", True), render)).mark == "mark-4"


async def test_a_rendering_that_fails_is_tried_again():
    parts, render = LiveParts(clock=lambda: 0.0), Rendering()

    async def broken() -> LivePart:
        raise OSError

    found = await asyncio.gather(parts.get(("doses", True), broken), return_exceptions=True)
    assert isinstance(found[0], OSError)
    assert (await parts.get(("doses", True), render)).mark == "mark-1"


async def test_only_the_newest_parts_are_kept():
    parts, render = LiveParts(clock=lambda: 0.0), Rendering()
    for number in range(MOST + 1):
        await parts.get((str(number), True), render)
    await parts.get(("0", True), render)
    assert render.count == MOST + 2
