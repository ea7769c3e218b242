"""The changing parts of experiments' pages, shared by all consoles that look at them."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import monotonic

SECONDS = 4.0  # as often as a page asks
MOST = 64  # parts kept

Key = tuple[str, bool]  # the experiment's full name, and whether its buttons are shown


@dataclass(frozen=True, slots=True)
class LivePart:
    """A rendered part, and the mark of what it shows."""

    mark: str
    text: str


Renew = Callable[[LivePart | None], Awaitable[LivePart]]  # the same part if nothing has changed


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

    async def get(self, key: Key, renew: Renew) -> LivePart:
        """The part; it is renewed if it is too old, and otherwise costs no query."""
        kept = self._kept_of(key)
        async with kept.lock:
            if kept.part is None or self._clock() - kept.at >= SECONDS:
                at = self._clock()
                kept.part = await renew(kept.part)
                kept.at = at
            return kept.part

    def forget(self, full_name: str) -> None:
        """Render anew what a person has just changed or loaded as a whole page."""
        for key in [each for each in self._kept if each[0] == full_name]:
            del self._kept[key]

    def _kept_of(self, key: Key) -> _Kept:
        kept = self._kept.setdefault(key, _Kept())
        self._kept.move_to_end(key)
        if len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return kept
