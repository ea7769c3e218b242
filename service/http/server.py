"""Runs the server and shuts it down gracefully.

On SIGTERM or Ctrl-C the process stops being ready and goes on serving for a moment, so that load balancers
notice. Then it stops listening, finishes the requests in flight, writes accepted events and exits with 0.
A second Ctrl-C ends it at once.
"""

import asyncio
import logging
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from service.ops.process_tuning import freeze_gc, keep_large_blocks, share_arenas
from service.ops.supervisor import Readiness

BACKLOG = 65_535  # the system may limit it further; refused connections retry after a second
SIGNALS = (signal.SIGINT, signal.SIGTERM)
LAST_CALL_SECONDS = 0.1
# With Python's default of 5 ms, every switch between the event loop and the database thread would wait
# that long while another thread folds or publishes.
SWITCH_SECONDS = 0.0005

log = logging.getLogger(__name__)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; OSError if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def log_stop() -> None:
    """Say that this process ends in order."""
    log.info("stopped", extra={"action": "service_stopped", "process_id": os.getpid()})


def url_of(listener: socket.socket) -> str:
    """The service's URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Timeouts: of an idle connection, of requests at shutdown, and before shutdown begins."""

    keep_alive_seconds: int
    drain_seconds: float
    drain_delay_seconds: float


def tune_process() -> None:
    """Tune a serving process; called before anything else."""
    sys.setswitchinterval(SWITCH_SECONDS)
    share_arenas()
    keep_large_blocks()


def server_config(
    app: ASGIApp, protocol: type[asyncio.Protocol], options: ServerOptions
) -> uvicorn.Config:
    """How uvicorn runs the app."""
    return uvicorn.Config(
        app,
        loop="uvloop",
        http=protocol,
        ws="none",
        lifespan="on",
        interface="asgi3",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # no code uses the caller's address
        backlog=BACKLOG,
        timeout_keep_alive=options.keep_alive_seconds,
        timeout_graceful_shutdown=max(1, round(options.drain_seconds)),
    )


class DrainingServer(uvicorn.Server):
    """uvicorn with a drain in front of its shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        readiness: Readiness,
        delay_seconds: float,
        on_started: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._readiness = readiness
        self._delay_seconds = delay_seconds
        self._on_started = on_started
        readiness.on_failure = self.drain

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then log and report it."""
        freeze_gc()  # before there are tasks that it would hold up
        await super().startup(sockets)
        if self.started:
            log.info("started", extra={"action": "service_started", "process_id": os.getpid()})
            self._on_started()
            self._follow_parent()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening without resetting connections that are already established."""
        await self._accept_remaining(sockets or [])
        await super().shutdown(sockets)

    async def _accept_remaining(self, listeners: list[socket.socket]) -> None:
        # Closing a listening socket resets the connections that the kernel has established but nothing
        # has accepted. A duplicate keeps the socket open while the event loop closes its own.
        kept = [listener.dup() for listener in listeners]
        for server in self.servers:
            server.close()
        for listener in listeners:
            listener.close()
        await asyncio.sleep(LAST_CALL_SECONDS)
        late = [connection for listener in kept for connection in _emptied(listener)]
        loop = asyncio.get_running_loop()
        for connection in late:
            await loop.connect_accepted_socket(self._protocol, connection)
        await asyncio.sleep(LAST_CALL_SECONDS)  # time for the first requests on these connections

    def _protocol(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals ourselves: uvicorn would raise them again and not exit with 0.

        The event loop's handlers may report a signal twice if another follows closely, as the parent's
        does: one Ctrl-C would count as two.
        """
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            signal.signal(number, lambda sent, _: loop.call_soon_threadsafe(self._on_signal, sent))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # The process is about to exit with 0; a late SIGTERM of the parent must not change that.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def drain(self) -> None:
        """Stop being ready now, and stop listening after the delay."""
        if self._readiness.is_draining:
            return
        self._readiness.begin_drain()
        log.info("draining", extra={"action": "service_draining", "process_id": os.getpid()})
        delay = self._delay_seconds if self.started else 0
        asyncio.get_running_loop().call_later(delay, self._stop)

    def _follow_parent(self) -> None:
        """Drain when the parent process is gone: nothing else would stop this worker."""
        parent = multiprocessing.parent_process()
        if parent is not None:
            asyncio.get_running_loop().add_reader(parent.sentinel, self._on_orphaned)

    def _on_orphaned(self) -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None  # noqa: S101 - checked by `_follow_parent`
        asyncio.get_running_loop().remove_reader(parent.sentinel)
        self.drain()

    def _on_signal(self, number: int) -> None:
        if not self.started:  # nothing is accepted yet; the start may wait for the database
            log_stop()
            os._exit(0)
        if number == signal.SIGINT and self._readiness.is_draining:
            self.force_exit = self.should_exit = True
        self.drain()

    def _stop(self) -> None:
        self.should_exit = True


def _emptied(listener: socket.socket) -> list[socket.socket]:
    """The connections that wait in a listening socket's queue; closes the socket."""
    found = []
    listener.setblocking(False)
    with listener, suppress(BlockingIOError):
        while True:
            found.append(listener.accept()[0])
    return found
