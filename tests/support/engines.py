"""Engines for tests."""

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from service.parallel.engine import Engine


class Backwards(Executor):
    """Runs what was submitted in the wrong order: the newest first, once a result is asked for.

    Calls and results pass as bytes, as between processes.
    """

    def __init__(self) -> None:
        self.begun: list[tuple[Future[Any], bytes]] = []
        self.most_waiting = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Awaited = Awaited(self)
        self.begun.append((future, pickle.dumps((fn, args, kwargs))))
        self.most_waiting = max(self.most_waiting, len(self.begun))
        return future

    def run(self) -> None:
        while self.begun:
            future, call = self.begun.pop()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                fn, args, kwargs = pickle.loads(call)  # noqa: S301 - our own bytes
                found = pickle.dumps(fn(*args, **kwargs))
                future.set_result(pickle.loads(found))  # noqa: S301 - our own bytes
            except Exception as error:  # noqa: BLE001 - as executors do
                future.set_exception(error)


class Awaited(Future[Any]):
    """A future whose executor works when its result is asked for."""

    def __init__(self, executor: Backwards) -> None:
        super().__init__()
        self._executor = executor

    def result(self, timeout: float | None = None) -> Any:
        self._executor.run()
        return super().result(timeout)


def backwards(workers: int = 2) -> Engine:
    """An engine whose pieces end in another order than they began."""
    return Engine(Backwards(), workers)
