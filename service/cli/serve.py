"""Serving: the app in one process, or in several on one socket."""

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import partial

from service.app import ServiceApp, create_app
from service.http.protocol import guarded_protocol
from service.http.server import DrainingServer, ServerOptions, server_config, tune_process
from service.http.workers import serve_with_workers
from service.ops import logs
from service.ops.supervisor import Readiness
from service.settings import Settings

TASK_DIED = 1

log = logging.getLogger(__name__)


def serve(
    settings: Settings, listener: socket.socket, on_started: Callable[[], None] = lambda: None
) -> int:
    """Serve in this process until a signal; returns the exit code."""
    tune_process()
    app = create_app(settings)
    options = ServerOptions(
        keep_alive_seconds=settings.keep_alive_seconds,
        drain_seconds=settings.drain_seconds,
        drain_delay_seconds=settings.drain_delay_seconds,
    )
    config = server_config(app, protocol_class(app, settings), options)
    readiness: Readiness = app.state.readiness
    DrainingServer(config, readiness, options.drain_delay_seconds, on_started).run([listener])
    log.info("stopped", extra={"action": "service_stopped", "process_id": os.getpid()})
    return 0 if readiness.dead_task is None else TASK_DIED


def serve_in_workers(settings: Settings, listener: socket.socket) -> int:
    """Serve in `settings.workers` processes until a signal; returns the exit code."""
    return serve_with_workers(partial(worker, settings), settings.workers, listener)


def worker(settings: Settings, listener: socket.socket) -> None:
    """One of several serving processes."""
    logs.configure(settings.log_level, settings.log_format)
    sys.exit(serve(settings, listener))


def protocol_class(app: ServiceApp, settings: Settings) -> type[asyncio.Protocol]:
    """The protocol class of connections to the app."""
    return guarded_protocol(
        settings.header_timeout_seconds, app.shedding.early_refusal, app.fast_path
    )
