"""Large blobs of snapshots and candidates, written in parts so that nobody waits long for a lock.

A blob that is not large is kept in its own row. The parts of a large one are written before that row,
each in a transaction of its own, under the blob's hash: until the row is there they mean nothing.
"""

from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.storage.database import Database
from service.storage.tables import blob_parts, candidates, snapshots

LARGE_BYTES = 1 << 20
PART_BYTES = 512 << 10


async def write_parts(
    database: Database, experiment_id: str, sha256: str, blob: bytes, timeout_seconds: float
) -> bytes:
    """Write a large blob's parts; what is left for its own row."""
    if len(blob) <= LARGE_BYTES:
        return blob
    for number, start in enumerate(range(0, len(blob), PART_BYTES)):
        row = {
            "experiment_id": experiment_id,
            "sha256": sha256,
            "number": number,
            "content": blob[start : start + PART_BYTES],
        }
        await database.write(partial(_write_part, row), timeout_seconds)
    return b""


async def whole(
    connection: AsyncConnection, experiment_id: str, sha256: str, size: int, kept: bytes
) -> bytes:
    """A blob as it was written; `kept` is what its own row holds."""
    if len(kept) == size:
        return kept
    mine = _is_of(experiment_id, sha256)
    query = sa.select(blob_parts.c.content).where(mine).order_by(blob_parts.c.number)
    return b"".join(await connection.scalars(query))


async def drop_unused(connection: AsyncConnection, experiment_id: str) -> None:
    """Delete the parts that no snapshot and no candidate of an experiment refers to any more."""
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
