"""The servers that `benchmarks.serving` loads: echoes and the service, each a process on core 0."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

from tests.support.processes.servers import DURABLE_SETTINGS, PostgresServer, RedisServer, free_port
from tests.support.processes.service import ROOT, ServiceProcess, clean_environment

SERVER_CORE, OTHER_CORE = 0, 1
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Server:
    """A process that serves."""

    process_id: int
    port: int

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"

    def cpu_seconds(self) -> float:
        """What it and its children have used so far."""
        return cpu_seconds(self.process_id)


def cpu_seconds(*process_ids: int) -> float:
    """What processes and their children have used so far."""
    processes = [psutil.Process(each) for each in process_ids]
    family = [*processes, *(child for each in processes for child in each.children(recursive=True))]
    return sum(sum(each.cpu_times()[:2]) for each in family)


def pin(process_id: int, core: int) -> None:
    """Keep a process, all its threads and children on a core, where there are two."""
    if (os.cpu_count() or 1) < 2:
        return
    process = psutil.Process(process_id)
    for each in (process, *process.children(recursive=True)):
        for thread in each.threads():
            os.sched_setaffinity(thread.id, {core})


@contextmanager
def echo(kind: str) -> Iterator[Server]:
    """One of `benchmarks.echoes`."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.echoes", kind, str(port)]
    process = subprocess.Popen(command, env=clean_environment())  # noqa: S603
    try:
        server = Server(process.pid, port)
        _wait(server)
        pin(process.pid, SERVER_CORE)
        yield server
    finally:
        process.terminate()
        process.wait(START_SECONDS)


@contextmanager
def postgres(**settings: str) -> Iterator[PostgresServer]:
    """A Postgres of our own, with the service's schema."""
    server = PostgresServer(**DURABLE_SETTINGS, **settings)
    try:
        server.start()
        migration = [sys.executable, "-m", "service.cli", "migrate"]
        environment = clean_environment({"DABAND_DATABASE_URL": server.url()})
        subprocess.run(migration, env=environment, check=True, capture_output=True)  # noqa: S603
        yield server
    finally:
        server.remove()


@contextmanager
def redis() -> Iterator[str]:
    """The URL of a Redis of our own."""
    server = RedisServer()
    try:
        server.start()
        yield server.url
    finally:
        server.remove()


@contextmanager
def service(
    folder: Path, *, is_pinned: bool = True, checkout: Path | str = ROOT, **settings: str
) -> Iterator[Server]:
    """`daband serve` without a trainer, which has a process of its own in production."""
    folder.mkdir()
    patience = {"STORAGE_TIMEOUT_SECONDS": "30", "OVERLOAD_SECONDS": "30"}  # a busy machine is slow
    given = {"TRAINER_INSIDE": "false", **patience, **settings}
    with ExitStack() as stack:
        process = stack.enter_context(ServiceProcess(folder, checkout=checkout, **given))
        if is_pinned:
            pin(process.process_id, SERVER_CORE)
        yield Server(process.process_id, process.port)


def _wait(server: Server) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            httpx.post(f"{server.url}/select", json={})
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the echo does not answer"
            time.sleep(0.05)
        else:
            return
