"""The command line, `daband`."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.evaluation import evaluate, log_app, sweep
from service.cli.fit.command import fit
from service.cli.keys import key_app
from service.cli.options import (
    Address,
    DataDir,
    Decimal,
    Device,
    Encoding,
    EngineName,
    Ignore,
    Orthologs,
    Separator,
    Workers,
    cell_options,
    commands,
    fail,
    file_errors,
)
from service.cli.remote import demo, experiment_app, export, report, train_now, upload

BackupFile = Annotated[Path, typer.Argument(help="the file of the backup")]
ArchiveCopy = Annotated[
    str | None, typer.Option("--archive", help="folder or URL of the copies of archived files")
]

app = commands("Decisions by domain-adaptive contextual bandits.")


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
    typer.echo("daband starts …", err=True)  # loading torch takes seconds
    from service.cli.local import settings_from
    from service.cli.serve import start

    settings = settings_from(
        host=host,
        port=port,
        data_dir=data_dir,
        device=device,
        workers=workers,
        trainer_inside=trainer_inside,
    )
    raise typer.Exit(start(settings))


@app.command()
def train(data_dir: DataDir = None, device: Device = None) -> None:
    """Train in a separate process, next to `serve --no-trainer`."""
    from service.cli.local import settings_from
    from service.cli.train import start

    raise typer.Exit(start(settings_from(data_dir=data_dir, device=device)))


@app.command()
def migrate(data_dir: DataDir = None) -> None:
    """Migrate the database to the schema of this version."""
    from service.cli.database import migrated

    before, after = migrated(data_dir)
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
    engine: EngineName = "process",
    workers: Workers = None,
    address: Address = None,
    data_dir: DataDir = None,
    device: Device = None,
) -> None:
    """Fold the log from zero and compare with the stored snapshot; exit code 1 if they differ.

    With changes, replay the log through a fresh learner with these changes instead, also on an engine.
    """
    from service.cli.database import replayed
    from service.cli.local import settings_from
    from service.cli.log_evaluation import replay_counterfactual
    from service.parallel.opening import EngineOptions

    settings = settings_from(data_dir=data_dir, device=device)
    where = EngineOptions(engine, workers, address)
    if with_:
        replay_counterfactual(settings, experiment, with_, correction, as_json, where)
        return
    if where != EngineOptions():
        fail("--engine, --workers and --address are for --with")
    found = replayed(settings, experiment)
    typer.echo(f"offset   {found.offset}\nstored   {found.stored_hash}")
    typer.echo(f"replayed {found.replayed_hash}\n{'equal' if found.is_equal else 'different'}")
    raise typer.Exit(0 if found.is_equal else 1)


@app.command()
def backup(
    file: BackupFile,
    verify: Annotated[bool, typer.Option("--verify", help="only verify an existing file")] = False,
    archive: ArchiveCopy = None,
    data_dir: DataDir = None,
) -> None:
    """Write the whole database into one new file, while the service runs."""
    from service.cli.database import backed_up

    typer.echo(backed_up(file, verify, data_dir, archive))


@app.command()
def restore(
    file: BackupFile,
    verify: Annotated[bool, typer.Option("--verify", help="only verify the file")] = False,
    archive: ArchiveCopy = None,
    data_dir: DataDir = None,
) -> None:
    """Restore a backup into an empty, migrated database, SQLite or Postgres, in one transaction."""
    from service.cli.database import restored

    typer.echo(restored(file, verify, data_dir, archive))


@app.command()
def score(
    policy: Annotated[Path, typer.Option(help="a file of `daband export`")],
    contexts: Annotated[
        Path,
        typer.Option(
            help="target contexts: npy, JSON lines, a CSV, Parquet or .h5ad table, a folder or zip of images"
        ),
    ],
    confidence_floor: Annotated[
        float | None, typer.Option(min=0, max=1, help="abstain below this confidence")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON lines, or *.csv; default: standard output")
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", help="the column with the ids of a table's rows, which the answer repeats"
        ),
    ] = None,
    ignore: Ignore = None,
    separator: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = "utf-8",
    orthologs: Orthologs = None,
) -> None:
    """Score target contexts with a policy file, without a service, as `/target/select` does."""
    from service.cli.score import ScoringError, TableOptions, scored_lines, write_atomically
    from service.formats.rows.csv_rows import CsvOptions

    csv = CsvOptions(separator, decimal, encoding)
    cells = cell_options(None, False, orthologs, [contexts])
    options = TableOptions(id_column, ignore or (), csv, cells)
    as_csv = out is not None and out.suffix.lower() == ".csv"
    with file_errors(ScoringError):
        lines = scored_lines(policy, contexts, confidence_floor, options, as_csv=as_csv)
        if out is None:
            for line in lines:
                typer.echo(line, nl=False)
        else:
            write_atomically(out, lines)


@app.command()
def settings() -> None:
    """List all settings with values, defaults and meanings."""
    from rich.console import Console
    from rich.table import Table

    from service.cli.local import settings_from
    from service.settings import described

    values = settings_from().model_dump()
    table = Table()
    for title in ("variable", "value", "default", "meaning"):
        table.add_column(title, overflow="fold")
    for (name, default, meaning), value in zip(described(), values.values(), strict=True):
        table.add_row(name, "" if value is None else str(value), default, meaning)
    Console().print(table)


for command in (fit, demo, upload, train_now, report, export, evaluate, sweep):
    app.command()(command)
app.add_typer(experiment_app, name="experiment")
app.add_typer(log_app, name="log")
app.add_typer(key_app, name="keys")
