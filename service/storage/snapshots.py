"""Snapshots: learner states with their offset in the log."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import UnknownSnapshot, VersionConflict
from service.records import NewSnapshot, SnapshotRecord, StoredSnapshot
from service.storage.database import Database
from service.storage.experiments import lock_led
from service.storage.tables import (
    DatabaseNow,
    blob_parts,
    candidates,
    columns_without,
    experiments,
    snapshot_keys,
    snapshots,
)

T = TypeVar("T")

RECORD_COLUMNS = columns_without(snapshots, "blob")


class Snapshots:
    """Versions 1, 2, 3, … of each experiment; a version is immutable and never reused."""

    def __init__(self, database: Database, timeout_seconds: float = 10.0) -> None:
        self._database = database
        self._timeout_seconds = timeout_seconds  # long: blobs are large, and no request waits

    async def save(
        self, experiment_id: str, *, epoch: int, expected_version: int, snapshot: NewSnapshot
    ) -> SnapshotRecord:
        """Store the version after `expected_version` (0 before the first).

        Raises `StaleEpoch` if another trainer has taken over, `VersionConflict` if another snapshot was
        saved meanwhile. Saving the same snapshot again is safe. The first snapshot of each encoder version
        is pinned.
        """
        version = expected_version + 1
        sha256, kept = await write_parts(
            self._database, experiment_id, snapshot.blob, self._timeout_seconds
        )
        query = sa.select(*RECORD_COLUMNS).where(_is_at(experiment_id, version))

        async def insert(connection: AsyncConnection) -> SnapshotRecord:
            row = await lock_led(connection, experiment_id, epoch, experiments.c.next_version)
            if row.next_version == version:
                await _insert(connection, (experiment_id, version, epoch, sha256), snapshot, kept)
            saved = (await connection.execute(query)).one_or_none()
            if saved is None or saved.sha256 != sha256:
                raise VersionConflict(expected_version=expected_version)
            return _to_record(saved)

        return await self._database.write(insert, self._timeout_seconds)

    async def signing_key(self) -> bytes:
        """The key that signs snapshots outside the database; the same for all processes."""
        secret: bytes = await self._database.scalar(sa.select(snapshot_keys.c.secret))
        return secret

    async def find(self, experiment_id: str, version: int) -> SnapshotRecord | None:
        """The record of this version without its bytes, if it is kept; cheap enough for every news."""
        rows = await self._database.rows(
            sa.select(*RECORD_COLUMNS).where(_is_at(experiment_id, version))
        )
        return _to_record(rows[0]) if rows else None

    async def latest(self, experiment_id: str) -> StoredSnapshot | None:
        """The newest snapshot; None before the first."""
        return await self._newest(snapshots.c.experiment_id == experiment_id)

    async def newest_usable(
        self, experiment_id: str, use: Callable[[StoredSnapshot], Awaitable[T | None]]
    ) -> T | None:
        """The result of `use` for the newest kept snapshot for which it has one."""
        stored = await self.latest(experiment_id)
        while stored is not None:
            if (made := await use(stored)) is not None:
                return made
            is_earlier = snapshots.c.version < stored.record.version
            stored = await self._newest(snapshots.c.experiment_id == experiment_id, is_earlier)
        return None

    async def get(self, experiment_id: str, version: int) -> StoredSnapshot:
        """The snapshot of this version; raises `UnknownSnapshot`."""
        found = await self._newest(
            snapshots.c.experiment_id == experiment_id, snapshots.c.version == version
        )
        if found is None:
            raise UnknownSnapshot
        return found

    async def list(self, experiment_id: str, limit: int = 1000) -> list[SnapshotRecord]:
        """All kept snapshots without their bytes, the newest first."""
        query = (
            sa.select(*RECORD_COLUMNS)
            .where(snapshots.c.experiment_id == experiment_id)
            .order_by(snapshots.c.version.desc())
            .limit(limit)
        )
        rows = await self._database.rows(query)
        return [_to_record(row) for row in rows]

    async def pin(self, experiment_id: str, version: int) -> None:
        """Exclude a snapshot from pruning."""
        statement = sa.update(snapshots).where(_is_at(experiment_id, version))
        result = await self._database.write(
            lambda connection: connection.execute(statement.values(is_pinned=True))
        )
        if not result.rowcount:
            raise UnknownSnapshot

    async def prune(self, experiment_id: str, keep: int) -> int:
        """Delete all but the pinned and the newest `keep`; returns the number deleted."""
        return await self._database.write(
            partial(prune, snapshots, snapshots.c.version, experiment_id, max(keep, 1)),
            self._timeout_seconds,
        )

    async def _newest(self, *conditions: sa.ColumnElement[bool]) -> StoredSnapshot | None:
        query = (
            sa.select(*RECORD_COLUMNS, snapshots.c.blob)
            .where(*conditions)
            .order_by(snapshots.c.version.desc())
            .limit(1)
        )

        async def find(connection: AsyncConnection) -> StoredSnapshot | None:
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                return None
            record = _to_record(row[:-1])
            names = (record.experiment_id, record.sha256, record.size_bytes)
            return StoredSnapshot(record, await joined_blob(connection, *names, row[-1]))

        return await self._database.read(find, self._timeout_seconds)


def _is_at(experiment_id: str, version: int) -> sa.ColumnElement[bool]:
    return sa.and_(snapshots.c.experiment_id == experiment_id, snapshots.c.version == version)


async def _insert(
    connection: AsyncConnection,
    names: tuple[str, int, int, str],
    snapshot: NewSnapshot,
    kept: bytes,
) -> None:
    experiment_id, version, epoch, sha256 = names
    is_first = not await connection.scalar(
        sa.select(
            sa.exists().where(
                snapshots.c.experiment_id == experiment_id,
                snapshots.c.encoder_version == snapshot.encoder_version,
            )
        )
    )
    await connection.execute(
        sa.insert(snapshots).values(
            experiment_id=experiment_id,
            version=version,
            event_offset=snapshot.offset,
            encoder_version=snapshot.encoder_version,
            epoch=epoch,
            state_hash=snapshot.state_hash,
            sha256=sha256,
            size_bytes=len(snapshot.blob),
            is_pinned=snapshot.is_pinned or is_first,
            created_at=DatabaseNow(),
            note=json.dumps(dict(snapshot.note)),
            blob=kept,
        )
    )
    await connection.execute(
        sa.update(experiments)
        .where(experiments.c.experiment_id == experiment_id)
        .values(
            next_version=version + 1,
            folded_offset=snapshot.offset,
            is_unfinished=snapshot.is_unfinished,
        )
    )


def _to_record(row: Any) -> SnapshotRecord:
    fields: list[Any] = [*row[:-1], json.loads(row[-1])]
    return SnapshotRecord(*fields)


LARGE_BYTES = 1 << 20
PART_BYTES = 512 << 10


async def write_parts(
    database: Database, experiment_id: str, blob: bytes, timeout_seconds: float
) -> tuple[str, bytes]:
    """Write the parts of a large blob; returns its SHA-256 and the bytes for its own row."""
    digest = await asyncio.to_thread(hashlib.sha256, blob)  # megabytes: not on the event loop
    sha256 = digest.hexdigest()
    if len(blob) <= LARGE_BYTES:
        return sha256, blob
    for number, start in enumerate(range(0, len(blob), PART_BYTES)):
        row = {
            "experiment_id": experiment_id,
            "sha256": sha256,
            "number": number,
            "content": blob[start : start + PART_BYTES],
        }
        await database.write(partial(_write_part, row), timeout_seconds)
    return sha256, b""


async def joined_blob(
    connection: AsyncConnection, experiment_id: str, sha256: str, size: int, kept: bytes
) -> bytes:
    """The complete blob; `kept` are the bytes in its own row."""
    if len(kept) == size:
        return kept
    mine = _is_of(experiment_id, sha256)
    query = sa.select(blob_parts.c.content).where(mine).order_by(blob_parts.c.number)
    return b"".join(await connection.scalars(query))


async def prune(
    table: sa.Table,
    number: sa.Column[int],
    experiment_id: str,
    keep: int,
    connection: AsyncConnection,
) -> int:
    """Delete all snapshots or candidates but the pinned and the newest `keep`; returns how many."""
    its_own = table.c.experiment_id == experiment_id
    newest = sa.select(number).where(its_own).order_by(number.desc()).limit(keep)
    deleted = await connection.execute(
        sa.delete(table).where(its_own, table.c.is_pinned.is_(False), number.not_in(newest))
    )
    await _drop_unused(connection, experiment_id)
    return deleted.rowcount


async def _drop_unused(connection: AsyncConnection, experiment_id: str) -> None:
    """Delete the parts that no snapshot or candidate of the experiment refers to."""
    used = [
        sa.select(table.c.sha256).where(table.c.experiment_id == experiment_id)
        for table in (snapshots, candidates)
    ]
    await connection.execute(
        sa.delete(blob_parts).where(
            blob_parts.c.experiment_id == experiment_id,
            *(blob_parts.c.sha256.not_in(each) for each in used),
        )
    )


async def _write_part(row: dict[str, Any], connection: AsyncConnection) -> None:
    is_same = sa.and_(
        _is_of(row["experiment_id"], row["sha256"]), blob_parts.c.number == row["number"]
    )
    if not await connection.scalar(sa.select(sa.exists().where(is_same))):
        await connection.execute(sa.insert(blob_parts).values(row))


def _is_of(experiment_id: str, sha256: str) -> sa.ColumnElement[bool]:
    return sa.and_(blob_parts.c.experiment_id == experiment_id, blob_parts.c.sha256 == sha256)
