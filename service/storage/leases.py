"""Leases: at most one trainer per experiment, by rows and the database's clock.

Each trainer renews one row of its own, however many experiments it leads. An experiment's row names its
trainer. Unlike session locks, rows work with connection poolers and on SQLite. The epoch, checked in every
writing transaction, fences off a trainer that was suspended and lost its lease.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.records import Experiment, FailureStage, Lease, Status
from service.storage.database import Database
from service.storage.experiments import COLUMNS, experiment_of, lock_experiment
from service.storage.tables import (
    DatabaseNow,
    database_now,
    experiments,
    learning_failures,
    padded,
    trainers,
)

FORGOTTEN_AFTER = timedelta(days=1)  # for rows of killed trainers
MOST_NAMES = 1000  # of one query
LEASE = (experiments.c.lease_holder, experiments.c.lease_expires_at, experiments.c.epoch)


class Leases:
    """Grants leases; all times are the database's."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def renew(self, trainer_id: str, ttl_seconds: float) -> None:
        """Renew a trainer's row, and so all its leases, for `ttl_seconds`."""

        async def extend(connection: AsyncConnection) -> None:
            now = await database_now(connection)
            ends = {"expires_at": now + timedelta(seconds=ttl_seconds)}
            mine = trainers.c.trainer_id == trainer_id
            if not (
                await connection.execute(sa.update(trainers).where(mine).values(ends))
            ).rowcount:
                await connection.execute(sa.insert(trainers).values(trainer_id=trainer_id, **ends))
            gone = trainers.c.expires_at < now - FORGOTTEN_AFTER
            await connection.execute(sa.delete(trainers).where(gone))

        await self._database.write(extend)

    async def retire(self, trainer_id: str) -> None:
        """Release all leases of a trainer at once."""

        async def end(connection: AsyncConnection) -> None:
            mine = experiments.c.lease_holder == trainer_id
            await connection.execute(
                sa.update(experiments).where(mine).values(lease_holder=None, lease_expires_at=None)
            )
            await connection.execute(sa.delete(trainers).where(trainers.c.trainer_id == trainer_id))

        await self._database.write(end)

    async def due(self, trainer_id: str, names: Sequence[str] | None = None) -> list[Experiment]:
        """The experiments with work that no other living trainer leads, the oldest first.

        Work means unfolded events, or a due update or judgement. Failed experiments wait for their
        retry time. `names` restricts the result.
        """
        failure = learning_failures.c
        may_retry = sa.or_(failure.experiment_id.is_(None), failure.retry_at <= DatabaseNow())
        can_fold = sa.or_(may_retry, failure.stage != FailureStage.FOLDING.value)
        leads = trainers.c.trainer_id == experiments.c.lease_holder
        query = (
            sa.select(*COLUMNS)
            .join_from(experiments, trainers, leads, isouter=True)
            .join(
                learning_failures,
                failure.experiment_id == experiments.c.experiment_id,
                isouter=True,
            )
            .where(
                experiments.c.status != Status.DELETED.value,
                _is_free_for(trainer_id),
                sa.or_(
                    sa.and_(experiments.c.head_offset > experiments.c.folded_offset, can_fold),
                    sa.and_(experiments.c.is_unfinished, may_retry),
                ),
            )
            .order_by(experiments.c.experiment_id)
        )
        if names is not None:
            query = query.where(experiments.c.name.in_(padded(names[:MOST_NAMES])))
        rows = await self._database.rows(query)
        return [experiment_of(row) for row in rows]

    async def acquire(self, experiment_id: str, trainer_id: str) -> Lease | None:
        """The lease, unless another living trainer holds it.

        A new holder gets a new epoch, which fences off all earlier ones. `trainer_id` must be unique to
        the process.
        """

        async def take(connection: AsyncConnection) -> Lease | None:
            row = await lock_experiment(
                connection, experiment_id, *LEASE, DatabaseNow().label("now")
            )
            if row.lease_holder != trainer_id and await _is_held(connection, row):
                return None
            epoch = row.epoch if row.lease_holder == trainer_id else row.epoch + 1
            await connection.execute(
                sa.update(experiments)
                .where(experiments.c.experiment_id == experiment_id)
                .values(lease_holder=trainer_id, lease_expires_at=None, epoch=epoch)
            )
            return Lease(experiment_id, trainer_id, epoch)

        return await self._database.write(take)

    async def release(self, lease: Lease, *, is_unfinished: bool) -> None:
        """Release the lease, and record whether an update or a judgement is still due."""
        statement = (
            sa.update(experiments)
            .where(
                experiments.c.experiment_id == lease.experiment_id,
                experiments.c.lease_holder == lease.holder,
                experiments.c.epoch == lease.epoch,
            )
            .values(lease_holder=None, lease_expires_at=None, is_unfinished=is_unfinished)
        )
        await self._database.write(lambda connection: connection.execute(statement))


def _is_free_for(trainer_id: str) -> sa.ColumnElement[bool]:
    """Whether no other living trainer leads; builds before 0006 renew the experiment's own row."""
    now = DatabaseNow()
    is_dead = sa.and_(
        sa.or_(trainers.c.expires_at.is_(None), trainers.c.expires_at <= now),
        sa.or_(experiments.c.lease_expires_at.is_(None), experiments.c.lease_expires_at <= now),
    )
    holder = experiments.c.lease_holder
    return sa.or_(holder.is_(None), holder == trainer_id, is_dead)


async def _is_held(connection: AsyncConnection, row: Any) -> bool:
    if row.lease_holder is None:
        return False
    query = sa.select(trainers.c.expires_at).where(trainers.c.trainer_id == row.lease_holder)
    expires_at: datetime | None = await connection.scalar(query)
    return any(each is not None and each > row.now for each in (expires_at, row.lease_expires_at))
