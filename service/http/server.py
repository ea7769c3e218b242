"""Running the server: one process or several, and an end in order.

On SIGTERM or Ctrl-C the process stops being ready, goes on serving for a moment so that
balancers notice, stops listening, finishes the requests at work, writes what is accepted, and
exits with 0. A second Ctrl-C ends it at once.
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

from service.ops.process_tuning import keep_large_blocks, leave_the_past_alone, share_arenas
from service.ops.supervisor import Readiness

BACKLOG = 65_535  # the system has its own limit; who finds no room comes again after a second
SIGNALS = (signal.SIGINT, signal.SIGTERM)
LAST_CALL_SECONDS = 0.1
# Python's own 5 ms would be added to a request at every hand-over between the loop and the
# database's thread while another thread folds or publishes; a hand-over itself takes microseconds.
SWITCH_SECONDS = 0.0005

log = logging.getLogger(__name__)


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections from now on; OSError when the address is not to be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=BACKLOG)


def url_of(listener: socket.socket) -> str:
    """Where callers find the service."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Seconds: a connection's without a request, a request's when the server stops, before it stops."""

    keep_alive_seconds: int
    drain_seconds: float
    drain_delay_seconds: float


def tune_process() -> None:
    """Before anything else is done in a process that serves."""
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
        proxy_headers=False,  # nothing asks where a caller is
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
        """Start, then say so."""
        await super().startup(sockets)
        if self.started:
            leave_the_past_alone()
            log.info("started", extra={"action": "service_started", "process_id": os.getpid()})
            self._on_started()
            self._follow_parent()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening without turning anyone away who is connected already."""
        await self._hear_the_last(sockets or [])
        await super().shutdown(sockets)

    async def _hear_the_last(self, listeners: list[socket.socket]) -> None:
        # Connections that the kernel has made and nobody has accepted are reset when a listening
        # socket is closed. A copy keeps it open while the loop lets go of its own.
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
        await asyncio.sleep(LAST_CALL_SECONDS)  # who has just connected gets to ask

    def _protocol(self) -> asyncio.Protocol:
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals ourselves: uvicorn would raise them again and so not exit with 0.

        They are not left to the loop either, which may tell a signal twice when another one comes
        close behind, as the parent's does: one Ctrl-C would be taken for two.
        """
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            signal.signal(number, lambda sent, _: loop.call_soon_threadsafe(self._on_signal, sent))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            # Nothing is left but the exit, which a late word of the parent's must not spoil.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def drain(self) -> None:
        """Stop being ready now, and stop listening in a moment."""
        if self._readiness.is_draining:
            return
        self._readiness.begin_drain()
        log.info("draining", extra={"action": "service_draining", "process_id": os.getpid()})
        delay = self._delay_seconds if self.started else 0
        asyncio.get_running_loop().call_later(delay, self._stop)

    def _follow_parent(self) -> None:
        """A worker whose parent is gone would serve on with nobody to stop it."""
        parent = multiprocessing.parent_process()
        if parent is not None:
            asyncio.get_running_loop().add_reader(parent.sentinel, self._on_orphaned)

    def _on_orphaned(self) -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None  # noqa: S101 - it was there when this was set up
        asyncio.get_running_loop().remove_reader(parent.sentinel)
        self.drain()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGINT and self._readiness.is_draining:
            self.force_exit = self.should_exit = True
        self.drain()

    def _stop(self) -> None:
        self.should_exit = True


def _emptied(listener: socket.socket) -> list[socket.socket]:
    """The connections that wait at a socket, which is closed at once."""
    found = []
    listener.setblocking(False)
    with listener, suppress(BlockingIOError):
        while True:
            found.append(listener.accept()[0])
    return found
