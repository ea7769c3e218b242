"""Opens an engine by its name."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Literal

from service.parallel.engine import Engine, EngineError

Name = Literal["process", "ray"]
MISSING = "--engine ray needs Ray: pip install 'daband[ray]'"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Which engine, with how many workers; `address` names a Ray cluster that runs already."""

    name: Name = "process"
    workers: int | None = None
    address: str | None = None

    @property
    def is_this_process(self) -> bool:
        """Whether all work is done in the process that asks."""
        return self.name == "process" and self.workers in (None, 1)

    def check(self) -> None:
        """Refuse what does not fit together."""
        if self.address is not None and self.name != "ray":
            raise EngineError("--address is for --engine ray")
        if self.address is not None and self.workers is not None:
            raise EngineError("--workers: a cluster with an --address has workers of its own")
        if self.name == "ray" and find_spec("ray") is None:
            raise EngineError(MISSING)


@contextmanager
def opened_engine(options: EngineOptions) -> Iterator[Engine | None]:
    """The engine, closed at the end; None for the process that asks."""
    options.check()
    if options.is_this_process:
        yield None
    elif options.name == "process":
        count = options.workers or 1
        pool = ProcessPoolExecutor(count, get_context("spawn"))
        try:
            yield Engine(pool, count)
        finally:
            pool.shutdown(cancel_futures=True)
    else:
        from service.parallel.on_ray import ray_engine

        with ray_engine(options.address, options.workers) as engine:
            yield engine
