"""Engines: where independent pieces of heavy work run.

A piece is one call of a pure function of a module. All that it needs is in its arguments, so that it
gives the same in any process, and may be done again if its process is lost. Results are taken in the order of
the pieces: an outcome does not depend on the engine, nor on how many workers it has.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
P = TypeVar("P")
R = TypeVar("R")

AHEAD = 2  # pieces a worker that are begun before their results are taken


class EngineError(ValueError):
    """The engine cannot be used, or lost a piece too often."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An executor of the standard library, and how many pieces it runs at a time."""

    executor: Executor
    workers: int

    def submit(
        self, work: Callable[Given, R], *given: Given.args, **named: Given.kwargs
    ) -> Future[R]:
        """Begin one piece."""
        return self.executor.submit(work, *given, **named)

    def in_order(self, work: Callable[[P], R], pieces: Iterable[P]) -> Generator[R]:
        """The results in the order of the pieces; a few are begun ahead, so memory is bounded."""
        begun: deque[Future[R]] = deque()
        try:
            for piece in pieces:
                begun.append(self.submit(work, piece))
                if len(begun) >= AHEAD * self.workers:
                    yield result_of(begun.popleft())
            while begun:
                yield result_of(begun.popleft())
        finally:
            for future in begun:
                future.cancel()


def result_of(future: Future[R]) -> R:
    """The result of a piece, or its error."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise EngineError("a worker process ended; it may have had too little memory") from error
