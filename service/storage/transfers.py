"""Judgements of transfer, one for each judged encoder version."""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.records import TransferRecord
from service.storage.database import Database
from service.storage.experiments import lock_led
from service.storage.tables import DatabaseNow, columns_without, transfers


class Transfers:
    """The first judgement of each encoder version's transfer."""

    def __init__(self, database: Database, timeout_seconds: float = 10.0) -> None:
        self._database = database
        self._timeout_seconds = timeout_seconds

    async def save(
        self,
        experiment_id: str,
        encoder_version: int,
        offset: int,
        judgement: Mapping[str, Any],
        *,
        epoch: int,
    ) -> None:
        """Save the judgement of an encoder version, unless there is one."""
        row = {
            "experiment_id": experiment_id,
            "encoder_version": encoder_version,
            "event_offset": offset,
            "created_at": DatabaseNow(),
            "judgement": json.dumps(dict(judgement)),
        }
        is_there = _is_judged(experiment_id, encoder_version)

        async def insert(connection: AsyncConnection) -> None:
            await lock_led(connection, experiment_id, epoch)
            if not await connection.scalar(is_there):
                await connection.execute(sa.insert(transfers).values(row))

        await self._database.write(insert, self._timeout_seconds)

    async def has(self, experiment_id: str, encoder_version: int) -> bool:
        """Whether an encoder version was judged."""
        query = _is_judged(experiment_id, encoder_version)
        found = await self._database.scalar(query, self._timeout_seconds)
        return bool(found)

    async def list(self, experiment_id: str) -> list[TransferRecord]:
        """All judgements, the oldest first."""
        query = (
            sa.select(*columns_without(transfers, "experiment_id"))
            .where(transfers.c.experiment_id == experiment_id)
            .order_by(transfers.c.encoder_version)
        )
        rows = await self._database.rows(query, self._timeout_seconds)
        return [
            TransferRecord(version, offset, moment, _read(judgement))
            for version, offset, moment, judgement in rows
        ]


def _is_judged(experiment_id: str, encoder_version: int) -> sa.Select[bool]:
    return sa.select(
        sa.exists().where(
            transfers.c.experiment_id == experiment_id,
            transfers.c.encoder_version == encoder_version,
        )
    )


def _read(judgement: str) -> dict[str, Any]:
    """A stored judgement; earlier builds called its diagnostics a bound, and expected no reward."""
    found: dict[str, Any] = json.loads(judgement)
    if "bound" in found:
        found["diagnostics"] = found.pop("bound")
        del found["diagnostics"]["bound_total"]
    return found
