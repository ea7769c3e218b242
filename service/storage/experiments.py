"""Experiments: declaration, phase, status and counters."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.auth.tenants import SEPARATOR, TenantScope, split
from service.errors import (
    ExperimentExists,
    StaleEpoch,
    TooManyExperiments,
    UnknownExperiment,
)
from service.limits import Quotas
from service.records import Actor, Experiment, Phase, Status, uuid7
from service.storage.audit import write_act
from service.storage.database import Database
from service.storage.events.rows import chunks
from service.storage.tables import DatabaseNow, experiments, padded
from service.storage.tenants import is_within

Row = sa.Row[*tuple[Any, ...]]

COLUMNS = tuple(experiments.c[name] for name in Experiment.__dataclass_fields__)

# Deleted experiments are treated as unknown; their rows are removed after their logs.
IS_THERE = experiments.c.status != Status.DELETED.value
MOST_IDS = 1000  # of one query
CREATION_LOCK = 0x6461_6261_6E65  # the key of the advisory lock for new experiments


class Experiments:
    """The experiments by full name. An event changes the phase (`records.phase_event`)."""

    def __init__(self, database: Database, quotas: Quotas | None = None) -> None:
        self._database = database
        self._quotas = quotas or Quotas()

    async def create(
        self,
        name: str,
        spec: str,
        phase: Phase = Phase.ZERO_SHOT,
        config: str | None = None,
        recipe: int | None = None,
        *,
        actor: Actor | None = None,
    ) -> Experiment:
        """Create an active experiment; raises `ExperimentExists` or `TooManyExperiments`.

        An actor who says why goes into the audit trail.
        """
        experiment_id = uuid7()
        row = {
            "experiment_id": experiment_id,
            "name": name,
            "spec": spec,
            "config": config,
            "recipe": recipe,
            "phase": phase.value,
            "status": Status.ACTIVE.value,
            "created_at": DatabaseNow(),
        }

        async def insert(connection: AsyncConnection) -> Experiment:
            # Checked before inserting, so that a violated constraint means a race and is retried.
            if (await connection.execute(_those(experiments.c.name == name))).first():
                raise ExperimentExists
            await _wait_for_other_creations(connection)
            await self._check_quotas(connection, split(name)[0])
            await connection.execute(sa.insert(experiments).values(row))
            made = await _get(connection, experiments.c.experiment_id == experiment_id)
            if actor is not None:
                await write_act(connection, made, "created", actor)
            return made

        return await self._database.write(insert)

    async def _check_quotas(self, connection: AsyncConnection, tenant: TenantScope) -> None:
        quotas = self._quotas
        for limit, condition in (
            (quotas.per_tenant, is_within(experiments.c.name, tenant)),
            (quotas.in_all, sa.true()),
        ):
            count = sa.select(sa.func.count()).select_from(experiments).where(condition, IS_THERE)
            if (await connection.scalar(count) or 0) >= limit:
                raise TooManyExperiments(limit=limit)

    async def get(self, name: str) -> Experiment:
        """The experiment with this name; raises `UnknownExperiment`."""
        return await self._read(experiments.c.name == name)

    async def get_by_id(self, experiment_id: str) -> Experiment:
        """The experiment with this id; raises `UnknownExperiment`."""
        return await self._read(experiments.c.experiment_id == experiment_id)

    async def get_many(self, experiment_ids: Sequence[str]) -> "list[Experiment]":
        """The existing experiments among these ids."""
        found: list[Experiment] = []
        for some in chunks(experiment_ids, MOST_IDS):
            query = sa.select(*COLUMNS).where(
                experiments.c.experiment_id.in_(padded(some)), IS_THERE
            )
            rows = await self._database.rows(query)
            found += [experiment_of(row) for row in rows]
        return found

    async def list(self, tenant_scope: TenantScope | None = None) -> list[Experiment]:
        """All experiments, or those of a tenant scope, the oldest first."""
        query = (
            sa.select(*COLUMNS)
            .where(IS_THERE)
            .order_by(experiments.c.created_at, experiments.c.experiment_id)
        )
        if tenant_scope is not None:
            query = query.where(is_within(experiments.c.name, tenant_scope))
        rows = await self._database.rows(query)
        return [experiment_of(row) for row in rows]

    async def _read(self, condition: sa.ColumnElement[bool]) -> Experiment:
        return _only(await self._database.rows(_those(condition)))

    async def set_status(self, name: str, status: Status, actor: Actor | None = None) -> Experiment:
        """Pause, resume or archive; a change is recorded in the audit trail.

        Processes that have not noticed the change yet still write answered decisions of relaxed
        experiments.
        """
        if status is Status.DELETED:
            raise ValueError("an experiment is deleted by `delete`")

        async def update(connection: AsyncConnection) -> Experiment:
            before = await _get(connection, experiments.c.name == name)
            if before.status is status:
                return before
            await connection.execute(
                sa.update(experiments).where(experiments.c.name == name).values(status=status.value)
            )
            await write_act(connection, before, status.value, actor or Actor())
            return await _get(connection, experiments.c.name == name)

        return await self._database.write(update)

    async def set_config(
        self, experiment_id: str, config: str, recipe: int, *, epoch: int
    ) -> Experiment:
        """Store the configuration in force; raises `StaleEpoch` if another trainer has taken over."""
        its_own = experiments.c.experiment_id == experiment_id

        async def update(connection: AsyncConnection) -> Experiment:
            await lock_led(connection, experiment_id, epoch)
            values = {"config": config, "recipe": recipe}
            await connection.execute(sa.update(experiments).where(its_own).values(values))
            return await _get(connection, its_own)

        return await self._database.write(update)

    async def delete(self, name: str, actor: Actor | None = None) -> Experiment:
        """Make an experiment unknown and its name free at once; its log is erased later.

        Its trainer is fenced off.
        """

        async def mark(connection: AsyncConnection) -> Experiment:
            found = await _get(connection, experiments.c.name == name)
            await connection.execute(
                sa.update(experiments)
                .where(experiments.c.experiment_id == found.experiment_id)
                .values(
                    status=Status.DELETED.value,
                    name=f"{SEPARATOR}deleted{SEPARATOR}{found.experiment_id}",
                    epoch=experiments.c.epoch + 1,
                    lease_holder=None,
                    lease_expires_at=None,
                )
            )
            await write_act(connection, found, Status.DELETED.value, actor or Actor())
            return found

        return await self._database.write(mark)


async def _wait_for_other_creations(connection: AsyncConnection) -> None:
    """Two that count at once would both take the last place; SQLite has one writer at a time anyway."""
    if connection.dialect.name == "postgresql":
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(CREATION_LOCK)))


async def lock_experiment(
    connection: AsyncConnection, experiment_id: str, *columns: sa.ColumnElement[Any]
) -> Any:
    """The columns of an experiment's row, locked until the transaction ends."""
    query = (
        sa.select(*columns).where(experiments.c.experiment_id == experiment_id).with_for_update()
    )
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        raise UnknownExperiment
    return row


async def lock_led(
    connection: AsyncConnection, experiment_id: str, epoch: int, *columns: sa.ColumnElement[Any]
) -> Any:
    """`lock_experiment` for its trainer; raises `StaleEpoch` if another one has taken over."""
    row = await lock_experiment(connection, experiment_id, experiments.c.epoch, *columns)
    if row.epoch != epoch:
        raise StaleEpoch(epoch=epoch, current_epoch=row.epoch)
    return row


async def _get(connection: AsyncConnection, condition: sa.ColumnElement[bool]) -> Experiment:
    return _only((await connection.execute(_those(condition))).all())


def _those(condition: sa.ColumnElement[bool]) -> sa.Select[*tuple[Any, ...]]:
    return sa.select(*COLUMNS).where(condition, IS_THERE)


def _only(rows: Sequence[Row]) -> Experiment:
    if not rows:
        raise UnknownExperiment
    return experiment_of(rows[0])


def experiment_of(row: Row) -> Experiment:
    """The experiment of a row of `COLUMNS`."""
    experiment_id, name, spec, phase, status, *rest = row
    return Experiment(experiment_id, name, spec, Phase(phase), Status(status), *rest)
