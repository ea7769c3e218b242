"""Several serving processes on one socket, supervised by a parent process."""

import logging
import multiprocessing
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess

from prometheus_client.multiprocess import mark_process_dead
from uvicorn.config import STARTUP_FAILURE

from service.http.server import SIGNALS
from service.metrics import processes

WATCH_SECONDS = 0.2
PAUSE_SECONDS = 1.0  # before a process is replaced, so that a crash loop costs little

log = logging.getLogger(__name__)


Work = Callable[[socket.socket], None]


def serve_with_workers(work: Work, count: int, listener: socket.socket) -> int:
    """Run `work` in `count` processes until a signal; returns the exit code.

    A process that dies is replaced. If one cannot start, all are stopped.
    """
    with tempfile.TemporaryDirectory(prefix="daband-metrics-") as folder:
        processes.share_in(folder)
        parent = _Parent(work, count, listener)
        for number in SIGNALS:
            signal.signal(number, lambda *_: parent.ask_to_stop())
        return parent.run()


class _Parent:
    def __init__(self, work: Work, count: int, listener: socket.socket) -> None:
        self._work = work
        self._count = count
        self._listener = listener
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._is_asked = False
        self._is_stopping = False
        self._exit_code = 0

    def run(self) -> int:
        """Replace processes that die until asked to stop, then wait for their end."""
        for _ in range(self._count):
            self._start_one()
        while self._processes:
            wait([process.sentinel for process in self._processes], timeout=WATCH_SECONDS)
            if self._is_asked and not self._is_stopping:
                self._stop()
            for process in [each for each in self._processes if not each.is_alive()]:
                self._handle_exit(process)
        return self._exit_code

    def ask_to_stop(self) -> None:
        """Called by a signal handler: sets a flag only."""
        self._is_asked = True

    def _stop(self) -> None:
        """Send SIGTERM to all processes."""
        self._is_stopping = True
        self._listener.close()  # otherwise it would accept connections that no process serves
        for process in self._processes:
            if process.is_alive() and process.pid is not None:
                os.kill(process.pid, signal.SIGTERM)

    def _start_one(self) -> None:
        process = self._context.Process(
            target=self._work, args=(self._listener,), name="daband-worker"
        )
        process.start()
        self._processes.append(process)

    def _handle_exit(self, process: SpawnProcess) -> None:
        self._processes.remove(process)
        process.join()
        if process.pid is not None:
            mark_process_dead(process.pid)  # drops its gauges; its counters remain
        if self._is_stopping:
            self._exit_code = self._exit_code or _code(process)
            return
        details = {"action": "worker_died", "process_id": process.pid, "code": process.exitcode}
        log.error("a serving process died", extra=details)
        if process.exitcode == STARTUP_FAILURE:
            self._exit_code = STARTUP_FAILURE
            self._stop()
        else:
            self._replace()

    def _replace(self) -> None:
        time.sleep(PAUSE_SECONDS)
        if not self._is_asked:
            self._start_one()


def _code(process: SpawnProcess) -> int:
    # A child that a signal ended has a negative code, which is not a valid exit status.
    return 1 if process.exitcode is None or process.exitcode < 0 else process.exitcode
