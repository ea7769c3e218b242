"""Training in a process of its own."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import prometheus_client
import typer

from service.app import running_trainer
from service.cli.local import run
from service.http.server import SIGNALS
from service.metrics import Metrics
from service.ops.process_tuning import (
    freeze_gc,
    give_back,
    map_large_blocks,
    share_arenas,
)
from service.ops.supervisor import Readiness
from service.settings import Settings

FOLDING_THREADS = 3
GIVE_BACK_SECONDS = 15.0  # interval for returning a trainer's memory, which folding fragments


def start(settings: Settings) -> int:
    """Train until a signal; the exit code."""
    readiness = Readiness()
    share_arenas()
    map_large_blocks()
    run(train(settings, readiness))
    return 0 if readiness.dead_task is None else 1


async def train(settings: Settings, readiness: Readiness) -> None:
    """Train until a signal comes or a task dies."""
    stopped = asyncio.Event()
    readiness.on_failure = stopped.set
    loop = asyncio.get_running_loop()
    # Few, since folding is bound by the GIL; several, since a large snapshot must not block all others.
    loop.set_default_executor(ThreadPoolExecutor(FOLDING_THREADS, "daband-folding"))
    metrics = Metrics()
    if settings.trainer_metrics_port:
        prometheus_client.start_http_server(
            settings.trainer_metrics_port, settings.host, metrics.registry
        )
    freeze_gc()  # before there are tasks that it would hold up
    async with running_trainer(settings, metrics, readiness):
        for number in SIGNALS:
            loop.add_signal_handler(number, stopped.set)
        typer.echo(f"daband trains on {settings.device}; Ctrl-C stops", err=True)
        while not stopped.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), GIVE_BACK_SECONDS)
            give_back()
