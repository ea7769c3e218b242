"""The service that is tested: one that runs already, or one that is started for the run.

Started, it is what would run in production on one machine: real processes, a database that syncs
every commit to the disk, and for Postgres also Redis and a trainer of its own.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from loadtest.sampling import Processes
from service.storage.database import Database
from service.storage.drivers import migrate
from tests.support.processes import guard
from tests.support.processes.servers import (
    DURABLE_SETTINGS,
    PostgresServer,
    RedisServer,
    running_server,
)
from tests.support.processes.service import ROOT, ServiceProcess, clean_environment

STOP_SECONDS = 60.0


@dataclass(frozen=True)
class ServiceUnderTest:
    """Its URL, and the processes that can be measured and killed."""

    url: str
    about: str
    database_url: str | None = None
    processes: Mapping[str, Processes] = field(default_factory=dict)
    restart_redis: Callable[[], None] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)  # of every request: a key, say
    logs: Path | None = None  # the folder of what its processes wrote


def running_already(
    url: str, database_url: str | None, process_id: int | None, headers: Mapping[str, str]
) -> ServiceUnderTest:
    """A service that is already running; it is sampled if its process is named."""
    processes = {} if process_id is None else {"service": tree(process_id)}
    about = f"service at {url}"
    return ServiceUnderTest(url, about, database_url, processes, headers=headers)


@contextmanager
def started(kind: str, workers: int, cores: set[int]) -> Iterator[ServiceUnderTest]:
    """A service of its own on a database of this kind, serving on these cores; gone in the end."""
    with tempfile.TemporaryDirectory(prefix="daband-load-") as folder, ExitStack() as stack:
        make = {"sqlite": _on_sqlite, "postgres": _on_postgres}[kind]
        yield make(stack, Path(folder), workers, cores)


def _on_sqlite(stack: ExitStack, folder: Path, workers: int, cores: set[int]) -> ServiceUnderTest:
    with on_cores(cores):
        service = stack.enter_context(ServiceProcess(folder, "--workers", str(workers)))
    return ServiceUnderTest(
        service.url,
        "1 process with its trainer inside, SQLite",
        f"sqlite:///{folder / 'data' / 'daband.db'}",
        {"service": tree(service.process_id)},
        logs=folder,
    )


def _on_postgres(stack: ExitStack, folder: Path, workers: int, cores: set[int]) -> ServiceUnderTest:
    postgres = stack.enter_context(running_server(PostgresServer(**DURABLE_SETTINGS)))
    redis = stack.enter_context(running_server(RedisServer()))
    asyncio.run(migrated(postgres.url()))
    urls = {"DATABASE_URL": postgres.url(), "REDIS_URL": redis.url}
    options = ("--workers", str(workers), "--no-trainer")
    with on_cores(cores):
        service = stack.enter_context(ServiceProcess(folder, *options, **urls))
    trainer = stack.enter_context(trainer_process(folder, urls))

    def restart_redis() -> None:
        redis.stop()
        redis.start()

    return ServiceUnderTest(
        service.url,
        f"{workers} serving process{'es' * (workers > 1)}, a trainer, Postgres (fsync on), Redis",
        postgres.url(),
        {
            "service": tree(service.process_id),
            "trainer": itself(trainer.pid),
            "training process": started_by(trainer.pid),
            "database": tree(postgres.process_id),
        },
        restart_redis,
        logs=folder,
    )


@contextmanager
def trainer_process(folder: Path, urls: Mapping[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """`daband train` with these settings; its output is kept in the folder."""
    command = [
        sys.executable,
        "-m",
        "service.cli",
        "train",
        "--data-dir",
        str(folder / "data"),
    ]
    environment = clean_environment({f"DABAND_{name}": url for name, url in urls.items()})
    with (folder / "trainer.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    guard.watch(process.pid)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


async def migrated(url: str) -> None:
    """Bring a database to the newest schema."""
    async with Database.opened(url) as database:
        await migrate.upgrade(database)


def tree(process_id: int) -> Processes:
    """A process and all that it has started, as they are when asked."""
    first, others = itself(process_id), started_by(process_id)
    return lambda: [*first(), *others()]


def itself(process_id: int) -> Processes:
    """A process alone."""
    root = psutil.Process(process_id)
    return lambda: [root] if root.is_running() else []


def started_by(process_id: int) -> Processes:
    """All that a process has started, as they are when asked."""
    root = psutil.Process(process_id)

    def processes() -> list[psutil.Process]:
        try:
            children: list[psutil.Process] = root.children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return children

    return processes


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """What is started meanwhile runs on these cores, and all that it starts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
