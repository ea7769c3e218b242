"""A request's stay: at work, except while it waits for its caller to send more of its body."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from service.concurrency_limit import ConcurrencyLimit
from service.errors import Overloaded

VISIT = "visit"  # where a request's scope keeps it


class Visit:
    """A request that is at work from now until its end."""

    __slots__ = ("_limit", "_since")

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self._limit = limit
        self._since = limit.enter()

    def end(self) -> None:
        """The request has ended."""
        self._limit.leave(self._since)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Meanwhile the request waits for its caller; its time is counted from then on."""
        if not self._limit.is_open_aside:
            raise Overloaded
        self._limit.step_aside()
        try:
            yield
        finally:
            self._since = self._limit.step_back()

    @property
    def is_crowded(self) -> bool:
        """Whether others took the room while it stood aside."""
        return self._limit.is_exceeded


@contextmanager
def aside(scope: Mapping[str, Any]) -> Iterator[None]:
    """Meanwhile the request of this scope waits for its caller, if it is counted at all."""
    visit: Visit | None = scope.get(VISIT)
    if visit is None:
        yield
        return
    with visit.aside():
        yield


def is_crowded(scope: Mapping[str, Any]) -> bool:
    """Whether others took the room of this scope's request while it stood aside."""
    visit: Visit | None = scope.get(VISIT)
    return visit is not None and visit.is_crowded
