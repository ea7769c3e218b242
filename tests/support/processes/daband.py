"""Service processes to start, kill and pause.

They are forked from a process that has imported the service already, for the import would be most
of what these tests cost; from there on they run the command line as a user does. `test_serve.py`
starts it as a user does, too. When the test run is killed, its guard kills them.
"""

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx
import psutil
import torch._dynamo  # noqa: F401 - the first training would import it, for seconds

from service.cli import database, main, serve, train  # noqa: F401 - what the commands import
from tests.support.http.clients import client_of
from tests.support.processes import guard
from tests.support.processes.servers import free_port
from tests.support.processes.service import clean_environment
from tests.support.waiting import (
    PATIENCE_SECONDS,
    PATIENT_ENVIRONMENT,
    eventually,
    wait_until,
)

# Read when the libraries are loaded, so in the process that the others are forked from.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.processes.daband"])


def run_command(command: Sequence[str], environment: Mapping[str, str], output: str) -> None:
    """Be `daband` from here on; meant for a process of its own."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    with open(output, "ab", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    sys.stderr = os.fdopen(2, "w", buffering=1)
    sys.argv = ["daband", *command]
    main.main()


class Daband:
    """A `daband` command that runs as a process; its output is kept over restarts.

    `settings` are `DABAND_*` variables without their prefix. Encoders train in a thread unless these
    say otherwise: a training process is started afresh, imports and all, which takes seconds.
    """

    def __init__(self, folder: Path, *command: str, **settings: object) -> None:
        self._command = command
        given = {**PATIENT_ENVIRONMENT, "TRAINING": "thread", **settings}
        self._settings = {name: str(value) for name, value in given.items()}
        self._process: ForkServerProcess | None = None
        self.name = "-".join(command[:2])
        self.output = folder / f"{self.name}-{id(self)}.log"
        self.starts = 0

    def start(self, **settings: object) -> None:
        """Start it, with these settings for this time only."""
        assert not self.is_running
        given = self._settings | {name: str(value) for name, value in settings.items()}
        environment = clean_environment({f"DABAND_{name}": value for name, value in given.items()})
        environment.pop("PYTEST_CURRENT_TEST", None)
        arguments = (self._command, environment, str(self.output))
        self._process = _context.Process(target=run_command, args=arguments)
        self._process.start()
        guard.watch(self.pid)
        self.starts += 1

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.is_alive()

    def kill(self) -> None:
        """No clean-up, no goodbye."""
        self.send(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """End it in order; the exit code."""
        self.send(signal.SIGTERM)
        return self.wait()

    @property
    def pid(self) -> int:
        assert self._process is not None
        assert self._process.pid is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """To the process and all that it has started."""
        os.killpg(self.pid, number)

    def send_to_parent(self, number: signal.Signals) -> None:
        """To the process alone."""
        os.kill(self.pid, number)

    def wait(self) -> int:
        """The exit code, once it has ended; negative when a signal ended it."""
        assert self._process is not None
        self._process.join(PATIENCE_SECONDS)
        assert self._process.exitcode is not None, f"{self.name} does not end: {self.tail()}"
        return self._process.exitcode

    def remove(self) -> None:
        """Kill it if it lives."""
        if self.is_running:
            self.kill()

    def lines(self, action: str) -> list[dict[str, Any]]:
        """The log lines with this action, of all starts."""
        found = self.printed.splitlines()
        parsed = [json.loads(line) for line in found if line.startswith("{") and action in line]
        return [line for line in parsed if line["action"] == action]

    @property
    def printed(self) -> str:
        """All of the output so far."""
        return self.output.read_text() if self.output.exists() else ""

    def tail(self) -> str:
        """The end of the output, for a test that fails."""
        return self.printed[-4000:]


class Server(Daband):
    """`daband serve` on a port of its own, the same after each restart."""

    def __init__(self, folder: Path, *options: str, **settings: object) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = ("serve", "--port", str(self.port), "--data-dir", str(folder / "data"), *options)
        super().__init__(folder, *command, **settings)

    def workers(self) -> list[psutil.Process]:
        """The serving processes that it has started; it has a helper process, too."""
        return [each for each in psutil.Process(self.pid).children() if _is_worker(each)]

    async def ready(self) -> None:
        """Wait until it takes requests."""
        await eventually(self._is_ready, self)

    def listens(self) -> bool:
        """Whether it has said where it is."""
        assert self.is_running, f"{self.name} ended: {self.tail()}"
        return self.url in self.printed

    async def _is_ready(self) -> bool:
        assert self.is_running, f"{self.name} ended: {self.tail()}"
        try:
            async with client_of(self.url) as client:
                return (await client.get("/readyz")).is_success
        except httpx.TransportError:
            return False


def _is_worker(process: psutil.Process) -> bool:
    try:
        return "spawn_main" in " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


@contextmanager
def serving(folder: Path, *options: str, **settings: object) -> Iterator[Server]:
    """A server that takes requests meanwhile."""
    server = Server(folder, *options, **settings)
    server.start()
    try:
        wait_until(server.listens)
        yield server
    finally:
        server.remove()
