"""Serving: the app in one process, or in several on one socket."""

import socket
import sys
from collections.abc import Callable
from functools import partial

import typer

from service.app import create_app, opened_database
from service.cli.local import run
from service.cli.options import fail
from service.http.protocol import guarded_protocol
from service.http.server import (
    DrainingServer,
    ServerOptions,
    listen,
    log_stop,
    server_config,
    tune_process,
    url_of,
)
from service.http.workers import serve_with_workers
from service.ops import logs
from service.ops.supervisor import Readiness
from service.settings import Settings
from service.storage.keys import Keys

TASK_DIED = 1
NO_KEY = (
    "serving on {host} needs keys, and there is none: create one with `daband keys create --scope "
    "select --scope reward …`, or {instead}"
)


def start(settings: Settings) -> int:
    """Serve as the settings say until a signal; the exit code."""
    if not run(_can_be_called(settings)):
        is_asked = settings.auth == "required"
        instead = "leave out DABAND_AUTH=required" if is_asked else "listen on 127.0.0.1"
        fail(NO_KEY.format(host=settings.host, instead=instead))
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        fail(f"cannot listen on {settings.host} port {settings.port}: {error.strerror}")
    banner = _banner(settings, url_of(listener))
    if settings.workers == 1:
        return serve(settings, listener, lambda: typer.echo(banner, err=True))
    typer.echo(banner, err=True)
    return serve_with_workers(partial(worker, settings), settings.workers, listener)


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
    protocol = guarded_protocol(
        settings.header_timeout_seconds, app.shedding.early_refusal, app.fast_path
    )
    config = server_config(app, protocol, options)
    readiness: Readiness = app.state.readiness
    DrainingServer(config, readiness, options.drain_delay_seconds, on_started).run([listener])
    log_stop()
    return 0 if readiness.dead_task is None else TASK_DIED


def worker(settings: Settings, listener: socket.socket) -> None:
    """One of several serving processes."""
    logs.configure(settings.log_level, settings.log_format)
    sys.exit(serve(settings, listener))


def _banner(settings: Settings, url: str) -> str:
    storage = f"SQLite in {settings.data_dir.resolve()}" if settings.is_embedded else "Postgres"
    bus = "in this process" if settings.bus_url is None else "Redis"
    trainer = "inside" if settings.trainer_inside else "elsewhere (`daband train`)"
    return "\n".join(
        (
            f"daband serves on {url}",
            f"  start    {url}/ in a browser",
            f"  docs     {url}/docs",
            f"  storage  {storage}, bus {bus}",
            f"  keys     {_key_rule(settings)}",
            f"  device   {settings.device}, workers {settings.workers}, trainer {trainer}",
            "  Ctrl-C drains and stops",
        )
    )


def _key_rule(settings: Settings) -> str:
    if settings.needs_keys:
        return "required (`daband keys`)"
    if settings.is_loopback:
        return "not required: the address is loopback"
    return "NOT REQUIRED: every caller has full access"


async def _can_be_called(settings: Settings) -> bool:
    """Whether the database can be opened and has a usable key, if keys are required."""
    async with opened_database(settings, waits=True) as database:
        return not settings.needs_keys or await Keys(database).has_usable()
