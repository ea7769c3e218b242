"""The changing parts of experiments' pages, shared by all consoles that look at them."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

SECONDS = 4.0  # as often as a page asks
MOST = 64  # parts kept

Key = tuple[str, bool]
Render = Callable[[str], Awaitable[str]]  # the text of a part with this mark


@dataclass(frozen=True, slots=True)
class LivePart:
    """A rendered part, and the mark of what it shows."""

    mark: str
    text: str


@dataclass(slots=True)
class _Kept:
    part: LivePart | None = None
    at: float = 0.0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class LiveParts:
    """Renders a part at most once in `SECONDS`, and only if it has changed, however many consoles ask for it."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()

    async def get(
        self, key: Key, read_mark: Callable[[], Awaitable[str]], render: Render
    ) -> LivePart:
        """The part; if it is too old its mark is read, and if that has changed it is rendered again."""
        kept = self._kept_of(key)
        async with kept.lock:
            if kept.part is None or self._clock() - kept.at >= SECONDS:
                at, mark = self._clock(), await read_mark()
                if kept.part is None or kept.part.mark != mark:
                    kept.part = LivePart(mark, await render(mark))
                kept.at = at
            return kept.part

    def forget(self, experiment_id: str) -> None:
        """Render anew what a person has just changed or loaded as a whole page."""
        for key in [each for each in self._kept if each[0] == experiment_id]:
            del self._kept[key]

    def _kept_of(self, key: Key) -> _Kept:
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return kept
