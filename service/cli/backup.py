"""`daband backup` and `daband restore`."""

from pathlib import Path
from typing import Annotated

import typer

from service.app import opened_database
from service.cli.options import DataDir, run, settings_from
from service.cli.remote import fail
from service.storage.backup.backup import backup as write_backup, restore as restore_backup
from service.storage.backup.format import BackupError, Contents, verified

File = Annotated[Path, typer.Argument(help="the file of the backup")]


def backup(
    file: File,
    verify: Annotated[bool, typer.Option("--verify", help="only verify an existing file")] = False,
    data_dir: DataDir = None,
) -> None:
    """Write the whole database into one new file, while the service runs."""
    try:
        contents = verified(file) if verify else run(_backup(file, data_dir))
    except BackupError as error:
        fail(str(error))
    typer.echo(_summary(contents))


def restore(
    file: File,
    verify: Annotated[bool, typer.Option("--verify", help="only verify the file")] = False,
    data_dir: DataDir = None,
) -> None:
    """Restore a backup into an empty, migrated database, SQLite or Postgres, in one transaction."""
    try:
        contents = verified(file) if verify else run(_restore(file, data_dir))
    except BackupError as error:
        fail(str(error))
    typer.echo(_summary(contents))


async def _backup(file: Path, data_dir: Path | None) -> Contents:
    async with opened_database(settings_from(data_dir=data_dir)) as database:
        return await write_backup(database, file)


async def _restore(file: Path, data_dir: Path | None) -> Contents:
    async with opened_database(settings_from(data_dir=data_dir)) as database:
        return await restore_backup(database, file)


def _summary(contents: Contents) -> str:
    counts = (f"  {name:<12} {count}" for name, count in contents.rows.items())
    lines = (f"schema {contents.schema}, of {contents.created_at}", *counts)
    return "\n".join((*lines, f"complete, sha256:{contents.sha256}"))
