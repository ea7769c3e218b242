"""Coroutines that seldom have to wait."""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promptly(Generic[T]):
    """Runs a coroutine at once, up to where it must wait; awaiting this goes on from there.

    What is only needed while something waits, such as a timer, is so set up for those few that
    do. Made and awaited in one task.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.is_done = False
        self.result: T
        self._work = work
        try:
            self._waits_for = work.send(None)
        except StopIteration as end:
            self.is_done, self.result = True, end.value

    def __await__(self) -> Generator[Any, Any, T]:
        """The result, once there."""
        if self.is_done:
            return self.result
        try:
            yield self._waits_for
            return (yield from self._work.__await__())
        finally:
            self._work.close()
