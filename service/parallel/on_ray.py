"""Pieces as tasks of a Ray cluster; imported only where one is used."""

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import ray
from ray.exceptions import RayError

from service.parallel.engine import Engine, EngineError

LOST_AT_MOST = 4  # times that a piece is done again after its worker or node was lost

REACHED_SECONDS = 10.0


@contextmanager
def ray_engine(address: str | None, workers: int | None) -> Iterator[Engine]:
    """A cluster that runs at `address`, or one on this machine for as long as the engine is used."""
    if address is not None:
        check_reachable(address)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        options |= {"num_cpus": workers, "include_dashboard": False}
    try:
        ray.init(address, **options)
    except (ConnectionError, RayError, RuntimeError, ValueError) as error:
        raise EngineError(f"ray: no cluster at {address or 'this machine'}: {error}") from error
    try:
        yield Engine(RayExecutor(), max(1, int(ray.cluster_resources().get("CPU", 1))))
    finally:
        ray.shutdown()


def check_reachable(address: str) -> None:
    """Refuse a host and port where nothing listens: Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal():
        return  # another form of address, which Ray knows
    try:
        socket.create_connection((host, int(port)), REACHED_SECONDS).close()
    except OSError as error:
        raise EngineError(f"ray: no cluster at {address}: {error.strerror or error}") from error


class RayExecutor(Executor):
    """Submits calls as tasks; Ray repeats a task whose worker, node or stored result was lost."""

    def __init__(self) -> None:
        spread = ray.remote(num_cpus=1, max_retries=LOST_AT_MOST, scheduling_strategy="SPREAD")
        self._run = spread(run_here)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Begin a call in the cluster."""
        wanted: Future[Any] = Future()
        task = self._run.remote(version("daband"), fn, args, kwargs)

        def pass_on(done: Future[Any]) -> None:
            if not wanted.set_running_or_notify_cancel():
                return  # cancelled: nobody waits for it
            if (failure := done.exception()) is not None:
                wanted.set_exception(explained(failure))
                return
            result, error = done.result()
            if error is None:
                wanted.set_result(result)
            else:
                wanted.set_exception(error)

        task.future().add_done_callback(pass_on)
        return wanted


def run_here(
    wanted_version: str, fn: Callable[..., Any], args: Any, kwargs: Any
) -> tuple[Any, Exception | None]:
    """A task: the result, or the error, which Ray would wrap into its traceback."""
    if (found := version("daband")) != wanted_version:
        return None, EngineError(f"ray: a worker has daband {found}, this is {wanted_version}")
    try:
        return fn(*args, **kwargs), None
    except Exception as error:  # noqa: BLE001 - it is raised where the result is wanted
        return None, error


def explained(failure: BaseException) -> BaseException:
    """What Ray itself failed with, in one line."""
    if not isinstance(failure, RayError):
        return failure
    first = (str(failure).strip() or type(failure).__name__).splitlines()[0]
    return EngineError(f"ray: a piece was lost ({type(failure).__name__}): {first}")
