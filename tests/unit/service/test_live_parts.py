"""Parts of pages that many consoles look at are rendered once for all, and only if they have changed."""

import asyncio

from service.console.live_parts import MOST, SECONDS, LivePart, LiveParts


class Experiment:
    """Its page is rendered part after part, and lets others run meanwhile."""

    def __init__(self) -> None:
        self.mark = "1"
        self.looks = self.renderings = 0

    async def renew(self, kept: LivePart | None) -> LivePart:
        self.looks += 1
        if kept is not None and kept.mark == self.mark:
            return kept
        self.renderings += 1
        await asyncio.sleep(0)
        return LivePart(self.mark, f"text {self.mark}")

    async def part(self, parts: LiveParts, name: str = "doses", can_act: bool = True) -> LivePart:
        return await parts.get((name, can_act), self.renew)


async def test_twenty_consoles_at_once_cost_one_rendering():
    parts, page = LiveParts(clock=lambda: 0.0), Experiment()
    found = await asyncio.gather(*(page.part(parts) for _ in range(20)))
    assert (page.looks, page.renderings) == (1, 1)
    assert set(found) == {LivePart("1", "text 1")}


async def test_an_old_part_is_rendered_again_only_if_it_has_changed():
    now, page = [0.0], Experiment()
    parts = LiveParts(clock=lambda: now[0])
    await page.part(parts)
    now[0] = SECONDS
    await page.part(parts)
    await page.part(parts)
    assert (page.looks, page.renderings) == (2, 1)
    page.mark = "2"
    assert (await page.part(parts)).mark == "1"  # looked at a moment ago
    now[0] += SECONDS
    assert await page.part(parts) == LivePart("2", "text 2")
    assert (page.looks, page.renderings) == (3, 2)


async def test_a_part_that_is_forgotten_or_of_others_is_rendered():
    parts, page = LiveParts(clock=lambda: 0.0), Experiment()
    await page.part(parts)
    await page.part(parts, can_act=False)
    parts.forget("doses")
    await page.part(parts)
    assert page.renderings == 3


async def test_a_rendering_that_fails_is_tried_again():
    parts, page = LiveParts(clock=lambda: 0.0), Experiment()

    async def broken(kept: LivePart | None) -> LivePart:
        raise OSError

    asked = parts.get(("doses", True), broken)
    found = await asyncio.gather(asked, return_exceptions=True)
    assert isinstance(found[0], OSError)
    assert (await page.part(parts)).text == "text 1"


async def test_only_the_newest_parts_are_kept():
    parts, page = LiveParts(clock=lambda: 0.0), Experiment()
    for number in range(MOST + 1):
        await page.part(parts, str(number))
    await page.part(parts, "0")
    assert page.renderings == MOST + 2
