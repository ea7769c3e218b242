"""Histories on their way into the log: kept in parts until the last round is written."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.storage.database import Database
from service.storage.tables import DatabaseNow, history_parts

TIMEOUT_SECONDS = 10.0  # parts are large


@dataclass(frozen=True, slots=True)
class HistoryPart:
    """Some rounds of a history, in its order; `first_row` counts from 0."""

    first_row: int
    content: bytes


@dataclass(frozen=True, slots=True)
class PendingHistory:
    """A history of which parts are left, the first of them, and when a part was stored last."""

    experiment_id: str
    sha256: str
    next_row: int
    stored_at: datetime


class HistoryParts:
    """Stores and deletes parts; the digest of the history is their name, so storing again is safe."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def store(self, experiment_id: str, sha256: str, part: HistoryPart) -> None:
        """Store a part, or note that it was stored again."""
        row = {
            "experiment_id": experiment_id,
            "sha256": sha256,
            "first_row": part.first_row,
            "content": part.content,
            "created_at": DatabaseNow(),
        }
        await self._database.write(partial(_store, row), TIMEOUT_SECONDS)

    async def first(self, experiment_id: str, sha256: str) -> HistoryPart | None:
        """The first part that is left."""
        query = (
            sa.select(history_parts.c.first_row, history_parts.c.content)
            .where(_is_of(experiment_id, sha256))
            .order_by(history_parts.c.first_row)
            .limit(1)
        )
        rows = await self._database.rows(query, TIMEOUT_SECONDS)
        return HistoryPart(*rows[0]) if rows else None

    async def delete(self, experiment_id: str, sha256: str, first_row: int) -> None:
        """Delete a part whose rounds are in the log."""
        await self._delete(_is_at(experiment_id, sha256, first_row))

    async def delete_before(self, experiment_id: str, sha256: str, moment: datetime) -> None:
        """Delete the parts that were stored before a moment."""
        await self._delete(_is_of(experiment_id, sha256), history_parts.c.created_at < moment)

    async def pending(self) -> Sequence[PendingHistory]:
        """All histories of which parts are left."""
        names = (history_parts.c.experiment_id, history_parts.c.sha256)
        newest = sa.func.max(history_parts.c.created_at, type_=history_parts.c.created_at.type)
        query = sa.select(*names, sa.func.min(history_parts.c.first_row), newest).group_by(*names)
        rows = await self._database.rows(query, TIMEOUT_SECONDS)
        return [PendingHistory(*row) for row in rows]

    async def _delete(self, *conditions: sa.ColumnElement[bool]) -> None:
        statement = sa.delete(history_parts).where(*conditions)
        await self._database.write(
            lambda connection: connection.execute(statement), TIMEOUT_SECONDS
        )


async def _store(row: dict[str, Any], connection: AsyncConnection) -> None:
    mine = _is_at(row["experiment_id"], row["sha256"], row["first_row"])
    again = sa.update(history_parts).where(mine).values(created_at=row["created_at"])
    if not (await connection.execute(again)).rowcount:
        await connection.execute(sa.insert(history_parts).values(row))


def _is_of(experiment_id: str, sha256: str) -> sa.ColumnElement[bool]:
    return sa.and_(history_parts.c.experiment_id == experiment_id, history_parts.c.sha256 == sha256)


def _is_at(experiment_id: str, sha256: str, first_row: int) -> sa.ColumnElement[bool]:
    return sa.and_(_is_of(experiment_id, sha256), history_parts.c.first_row == first_row)
