"""The command line, `daband`."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Annotated

import prometheus_client
import typer
from rich.console import Console
from rich.table import Table

from service.app import opened_database, running_trainer
from service.cli.backup import backup, restore
from service.cli.evaluation import evaluate, log_app, replay_counterfactual
from service.cli.keys import key_app
from service.cli.options import DataDir, Device, run, settings_from
from service.cli.remote import (
    demo,
    experiment_app,
    export,
    fail,
    report,
    score,
    train_now,
    upload,
)
from service.cli.serve import serve as serve_here, serve_in_workers
from service.http.server import SIGNALS, listen, url_of
from service.learning.replay import ReplayReport, replay as replay_log
from service.metrics import Metrics
from service.ops.process_tuning import (
    freeze_gc,
    give_back,
    map_large_blocks,
    share_arenas,
)
from service.ops.supervisor import Readiness
from service.settings import Settings, described
from service.storage.candidates import Candidates
from service.storage.database import Database
from service.storage.drivers import migrate as migrations
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.keys import Keys
from service.storage.snapshots import Snapshots

NO_KEY = (
    "serving on {host} needs keys, and there is none: create one with `daband keys create --scope "
    "select --scope reward …`, or listen on 127.0.0.1"
)
FOLDING_THREADS = 3
GIVE_BACK_SECONDS = 15.0  # interval for returning a trainer's memory, which folding fragments

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Decisions by domain-adaptive contextual bandits.",
)
app.add_typer(experiment_app, name="experiment")
app.add_typer(log_app, name="log")
app.add_typer(key_app, name="keys")
for command in (report, export, score, upload, train_now, evaluate, demo, backup, restore):
    app.command()(command)


def main() -> None:
    """Run the command line."""
    app()


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="0 takes a free port")] = None,
    data_dir: DataDir = None,
    device: Device = None,
    workers: Annotated[int | None, typer.Option(help="serving processes")] = None,
    trainer_inside: Annotated[
        bool | None, typer.Option("--trainer/--no-trainer", help="train in this process too")
    ] = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    settings = settings_from(
        host=host,
        port=port,
        data_dir=data_dir,
        device=device,
        workers=workers,
        trainer_inside=trainer_inside,
    )
    if not run(_can_be_called(settings)):
        fail(NO_KEY.format(host=settings.host))
    try:
        listener = listen(settings.host, settings.port)
    except OSError as error:
        fail(f"cannot listen on {settings.host} port {settings.port}: {error.strerror}")
    banner = _banner(settings, url_of(listener))
    if settings.workers == 1:
        code = serve_here(settings, listener, lambda: typer.echo(banner, err=True))
    else:
        typer.echo(banner, err=True)
        code = serve_in_workers(settings, listener)
    raise typer.Exit(code)


@app.command()
def train(data_dir: DataDir = None, device: Device = None) -> None:
    """Train in a separate process, next to `serve --no-trainer`."""
    settings = settings_from(data_dir=data_dir, device=device)
    readiness = Readiness()
    share_arenas()
    map_large_blocks()
    run(_train(settings, readiness))
    raise typer.Exit(0 if readiness.dead_task is None else 1)


@app.command()
def migrate(data_dir: DataDir = None) -> None:
    """Migrate the database to the schema of this version."""
    settings = settings_from(data_dir=data_dir)
    before, after = run(_migrate(settings))
    typer.echo(
        f"schema {after}, nothing to do" if before == after else f"schema {before} → {after}"
    )


@app.command()
def replay(
    experiment: str,
    with_: Annotated[
        list[str] | None,
        typer.Option("--with", help="alpha=0.2, method=nlinucb, …: a counterfactual replay"),
    ] = None,
    correction: Annotated[
        str, typer.Option(help="rejection or weighting; how --with corrects the log")
    ] = "rejection",
    as_json: Annotated[bool, typer.Option("--json", help="print --with's result as JSON")] = False,
    data_dir: DataDir = None,
    device: Device = None,
) -> None:
    """Fold the log from zero and compare with the stored snapshot; exit code 1 if they differ.

    With changes, replay the log through a fresh learner with these changes instead.
    """
    settings = settings_from(data_dir=data_dir, device=device)
    if with_:
        replay_counterfactual(settings, experiment, with_, correction, as_json)
        return
    report = run(_replay(settings, experiment))
    typer.echo(f"offset   {report.offset}\nstored   {report.stored_hash}")
    typer.echo(f"replayed {report.replayed_hash}\n{'equal' if report.is_equal else 'different'}")
    raise typer.Exit(0 if report.is_equal else 1)


@app.command()
def settings() -> None:
    """List all settings with values, defaults and meanings."""
    values = settings_from().model_dump()
    table = Table()
    for title in ("variable", "value", "default", "meaning"):
        table.add_column(title, overflow="fold")
    for (name, default, meaning), value in zip(described(), values.values(), strict=True):
        table.add_row(name, "" if value is None else str(value), default, meaning)
    Console().print(table)


def _banner(settings: Settings, url: str) -> str:
    storage = f"SQLite in {settings.data_dir.resolve()}" if settings.is_embedded else "Postgres"
    bus = "in this process" if settings.bus_url is None else "Redis"
    trainer = "inside" if settings.trainer_inside else "elsewhere (`daband train`)"
    return "\n".join(
        (
            f"daband serves on {url}",
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
    async with opened_database(settings) as database:
        return not settings.needs_keys or await Keys(database).has_usable()


async def _train(settings: Settings, readiness: Readiness) -> None:
    stopped = asyncio.Event()
    readiness.on_failure = stopped.set
    loop = asyncio.get_running_loop()
    # Few, since folding is bound by the GIL; several, since a large snapshot must not block all others.
    loop.set_default_executor(ThreadPoolExecutor(FOLDING_THREADS, "daband-folding"))
    for number in SIGNALS:
        loop.add_signal_handler(number, stopped.set)
    metrics = Metrics()
    if settings.trainer_metrics_port:
        prometheus_client.start_http_server(
            settings.trainer_metrics_port, settings.host, metrics.registry
        )
    async with running_trainer(settings, metrics, readiness):
        freeze_gc()
        typer.echo(f"daband trains on {settings.device}; Ctrl-C stops", err=True)
        while not stopped.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), GIVE_BACK_SECONDS)
            give_back()


async def _migrate(settings: Settings) -> tuple[str | None, str | None]:
    database = await Database.open(settings.storage_url)
    try:
        return await migrations.upgrade(database)
    finally:
        await database.close()


async def _replay(settings: Settings, name: str) -> ReplayReport:
    async with opened_database(settings) as database:
        experiment = await Experiments(database).get(name)
        log = EventLog(database)
        snapshots, candidates = Snapshots(database), Candidates(database)
        return await replay_log(experiment, log, snapshots, candidates, settings.device)
