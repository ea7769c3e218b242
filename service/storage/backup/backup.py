"""Backup and restore of the whole database in one file, while the service runs.

A backup is read in one transaction, so it is consistent. A restore verifies the file, writes it in one
transaction, and compares the rows before the commit.
"""

import asyncio
import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.ops.durable_files import durable_file
from service.records import utc_now
from service.storage.backup.format import (
    COMPRESSION,
    FORMAT,
    FORMAT_VERSION,
    BackupError,
    BackupWriter,
    Contents,
    Header,
    opened_backup,
    verified,
)
from service.storage.backup.table_rows import StoredTable, stored_tables
from service.storage.database import Database
from service.storage.drivers import migrate

DAY_SECONDS = 86_400.0


async def backup(
    database: Database, path: Path, tables: Sequence[StoredTable] | None = None
) -> Contents:
    """Write all tables into a new file, which gets its name only after it was read back and verified."""
    _check_is_new(path)
    with durable_file(path) as unfinished:
        written = await _write(database, unfinished, tables or stored_tables())
        if await asyncio.to_thread(verified, unfinished) != written:
            raise BackupError("the file cannot be read back: the disk may be damaged")
    return written


async def restore(
    database: Database, path: Path, tables: Sequence[StoredTable] | None = None
) -> Contents:
    """Write a verified file into an empty database of the same schema."""
    contents = await asyncio.to_thread(verified, path)
    schema = await migrate.current(database) or ""
    if contents.schema != schema:
        raise BackupError(
            f"the file has schema {contents.schema}, the database {schema or 'none'}: restore with"
            " the version of daband that wrote the file, then migrate"
        )
    known = {table.name: table for table in tables or stored_tables()}
    await asyncio.to_thread(_check_columns, path, known)
    await database.write(partial(_restore, path, known), DAY_SECONDS)
    return contents


def rows_of(path: Path, table: sa.Table) -> list[Mapping[str, Any]]:
    """The rows of one table in a file, by the names of its columns."""
    stored = StoredTable(table)
    with opened_backup(path) as reader:
        lines = [
            line for part in reader.parts() if part.table == stored.name for line in part.lines
        ]
    return [dict(zip(stored.columns, row, strict=True)) for row in _rows(stored, lines)]


async def _write(database: Database, path: Path, tables: Sequence[StoredTable]) -> Contents:
    async with database.snapshot() as connection:
        schema = await connection.run_sync(migrate.revision_of)
        header = Header(
            format=FORMAT,
            version=FORMAT_VERSION,
            schema=schema or "",
            created_at=utc_now().isoformat(),
            tables={table.name: list(table.columns) for table in tables},
        )
        with (
            path.open("xb") as raw,
            gzip.GzipFile(None, "wb", COMPRESSION, fileobj=raw, mtime=0) as file,
        ):
            writer = BackupWriter(file, header)
            for table in tables:
                async for page in table.pages(connection):
                    await asyncio.to_thread(writer.add, table.name, page)
            contents = writer.end()
    return contents


async def _restore(path: Path, tables: dict[str, StoredTable], connection: AsyncConnection) -> None:
    """The transaction of a restore; it may be retried from the beginning."""
    for table in tables.values():
        if not await table.is_empty(connection):
            raise BackupError(
                f"the database is not empty (table {table.name}): restore into a new one"
            )
    written = await _insert(connection, path, tables)
    for name, table in tables.items():
        if await _stored_sum(connection, table) != written[name]:
            raise BackupError(f"the rows of {name} in the database differ from the file")


async def _insert(
    connection: AsyncConnection, path: Path, tables: dict[str, StoredTable]
) -> dict[str, int]:
    """Write all rows of the file; returns their digests by table."""
    sums = dict.fromkeys(tables, 0)
    with opened_backup(path) as reader:
        parts = reader.parts()
        while (part := await asyncio.to_thread(next, parts, None)) is not None:
            sums[part.table] += _sum(part.lines)
            rows = await asyncio.to_thread(_rows, tables[part.table], part.lines)
            await tables[part.table].insert(connection, rows)
    return sums


def _check_columns(path: Path, tables: dict[str, StoredTable]) -> None:
    with opened_backup(path) as reader:
        if reader.header.tables != {name: list(each.columns) for name, each in tables.items()}:
            raise BackupError("the file's tables do not match this version of daband")


def _rows(table: StoredTable, lines: Iterable[bytes]) -> list[tuple[Any, ...]]:
    decode = msgspec.json.Decoder(tuple[*table.columns.values()]).decode  # type: ignore[misc]
    try:
        return [decode(line) for line in lines]
    except msgspec.MsgspecError as error:
        raise BackupError(f"a row of {table.name} does not fit its columns") from error


async def _stored_sum(connection: AsyncConnection, table: StoredTable) -> int:
    stored = 0
    async for page in table.pages(connection):
        stored += _sum(msgspec.json.encode(row) + b"\n" for row in page)
    return stored


def _sum(lines: Iterable[bytes]) -> int:
    """An order-independent digest of rows, because databases sort text differently."""
    return sum(int.from_bytes(hashlib.sha256(line).digest()) for line in lines)


def _check_is_new(path: Path) -> None:
    if path.exists():
        raise BackupError(f"{path} exists: a backup never overwrites a file")
    if not path.parent.is_dir():
        raise BackupError(f"there is no folder {path.parent}")
