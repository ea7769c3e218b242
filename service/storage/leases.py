"""Leases: at most one trainer an experiment, by a row and the database's clock.

A row works through connection poolers and on SQLite alike, where session locks do not. The
lease keeps trainers from doing the same work; the epoch, checked in the transactions that
write, is what keeps a trainer that was stopped and woke up late from doing harm.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.records import Lease
from service.storage.database import Database
from service.storage.experiments import lock_experiment
from service.storage.tables import DatabaseNow, experiments


class _Row(NamedTuple):
    holder: str | None
    expires_at: datetime | None
    epoch: int
    now: datetime

    def is_free_for(self, holder: str) -> bool:
        is_expired = self.expires_at is None or self.expires_at <= self.now
        return self.holder in (None, holder) or is_expired


class Leases:
    """Hands out the right to train; times are the database's, whatever our clock says."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, experiment_id: str, holder: str, ttl_seconds: float) -> Lease | None:
        """The lease if it is free, expired or already the holder's, else none.

        A new holder gets a new epoch, which fences off all earlier ones. `holder` must be
        unique to the process.
        """

        async def take(connection: AsyncConnection) -> Lease | None:
            row = await _lock(connection, experiment_id)
            if not row.is_free_for(holder):
                return None
            epoch = row.epoch if row.holder == holder else row.epoch + 1
            lease = Lease(experiment_id, holder, epoch, _later(row.now, ttl_seconds))
            await _store(connection, lease)
            return lease

        return await self._database.write(take)

    async def renew(self, lease: Lease, ttl_seconds: float) -> Lease | None:
        """The same lease with a later end, or none when another holder has it."""

        async def extend(connection: AsyncConnection) -> Lease | None:
            row = await _lock(connection, lease.experiment_id)
            if (row.holder, row.epoch) != (lease.holder, lease.epoch):
                return None
            expires_at = _later(row.now, ttl_seconds)
            renewed = Lease(lease.experiment_id, lease.holder, lease.epoch, expires_at)
            await _store(connection, renewed)
            return renewed

        return await self._database.write(extend)

    async def release(self, lease: Lease) -> None:
        """Give the lease back, so that another holder need not wait for its end."""
        statement = (
            sa.update(experiments)
            .where(
                experiments.c.experiment_id == lease.experiment_id,
                experiments.c.lease_holder == lease.holder,
                experiments.c.epoch == lease.epoch,
            )
            .values(lease_holder=None, lease_expires_at=None)
        )
        await self._database.write(lambda connection: connection.execute(statement))


async def _lock(connection: AsyncConnection, experiment_id: str) -> _Row:
    row = await lock_experiment(
        connection,
        experiment_id,
        experiments.c.lease_holder,
        experiments.c.lease_expires_at,
        experiments.c.epoch,
        DatabaseNow(),
    )
    return _Row(*row)


async def _store(connection: AsyncConnection, lease: Lease) -> None:
    await connection.execute(
        sa.update(experiments)
        .where(experiments.c.experiment_id == lease.experiment_id)
        .values(lease_holder=lease.holder, lease_expires_at=lease.expires_at, epoch=lease.epoch)
    )


def _later(now: datetime, seconds: float) -> datetime:
    return now + timedelta(seconds=seconds)
