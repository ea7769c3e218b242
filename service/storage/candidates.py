"""Candidates: trained encoders that are not served, kept for inspection and promotion."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import UnknownCandidate
from service.records import CandidateEncoder
from service.storage.database import Database
from service.storage.experiments import lock_led
from service.storage.snapshots import joined_blob, prune, write_parts
from service.storage.tables import DatabaseNow, candidates, columns_without

COLUMNS = columns_without(candidates, "blob")


class Candidates:
    """At most one candidate per episode; those that the log refers to are never pruned."""

    def __init__(self, database: Database, timeout_seconds: float = 10.0) -> None:
        self._database = database
        self._timeout_seconds = timeout_seconds  # long: blobs are large, and no request waits

    async def save(
        self,
        experiment_id: str,
        episode: int,
        blob: bytes,
        verdict: Mapping[str, Any],
        *,
        epoch: int,
        keep: int,
    ) -> None:
        """Save a candidate and prune old ones; saving it again changes nothing."""
        sha256, kept = await write_parts(self._database, experiment_id, blob, self._timeout_seconds)
        row = {
            "experiment_id": experiment_id,
            "episode": episode,
            "sha256": sha256,
            "size_bytes": len(blob),
            "is_pinned": False,
            "created_at": DatabaseNow(),
            "verdict": json.dumps(dict(verdict)),
            "blob": kept,
        }

        async def insert(connection: AsyncConnection) -> None:
            await lock_led(connection, experiment_id, epoch)
            is_there = sa.select(sa.exists().where(_is_at(experiment_id, episode)))
            if not await connection.scalar(is_there):
                await connection.execute(sa.insert(candidates).values(row))
                await prune(candidates, candidates.c.episode, experiment_id, keep, connection)

        await self._database.write(insert, self._timeout_seconds)

    async def get(self, experiment_id: str, episode: int) -> CandidateEncoder:
        """The candidate of an episode, with its bytes; raises `UnknownCandidate`."""
        query = sa.select(*COLUMNS, candidates.c.blob).where(_is_at(experiment_id, episode))

        async def find(connection: AsyncConnection) -> CandidateEncoder:
            row = (await connection.execute(query)).one_or_none()
            if row is None:
                raise UnknownCandidate
            found = _candidate(row)
            names = (experiment_id, found.sha256, found.size_bytes)
            return replace(found, blob=await joined_blob(connection, *names, found.blob))

        return await self._database.read(find, self._timeout_seconds)

    async def list(self, experiment_id: str) -> list[CandidateEncoder]:
        """All candidates without their bytes, the newest first."""
        query = (
            sa.select(*COLUMNS)
            .where(candidates.c.experiment_id == experiment_id)
            .order_by(candidates.c.episode.desc())
        )
        rows = await self._database.rows(query)
        return [_candidate(row) for row in rows]

    async def pin(self, experiment_id: str, episode: int) -> None:
        """Exclude a candidate from pruning."""
        statement = sa.update(candidates).where(_is_at(experiment_id, episode))
        result = await self._database.write(
            lambda connection: connection.execute(statement.values(is_pinned=True))
        )
        if not result.rowcount:
            raise UnknownCandidate


def _is_at(experiment_id: str, episode: int) -> sa.ColumnElement[bool]:
    return sa.and_(candidates.c.experiment_id == experiment_id, candidates.c.episode == episode)


def _candidate(row: Any) -> CandidateEncoder:
    experiment_id, episode, sha256, size_bytes, is_pinned, created_at, verdict, *blob = row
    return CandidateEncoder(
        experiment_id,
        episode,
        sha256,
        size_bytes,
        is_pinned,
        created_at,
        json.loads(verdict),
        *blob,
    )
