"""The audit trail of administrative acts, outside the event logs. It outlives an experiment."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.auth.tenants import TenantScope
from service.records import Actor, AuditRecord, Experiment, uuid7
from service.storage.database import Database
from service.storage.tables import DatabaseNow, audit, columns_without
from service.storage.tenants import is_within

COLUMNS = columns_without(audit, "audit_id")


async def write_act(
    connection: AsyncConnection, experiment: Experiment, act: str, actor: Actor
) -> None:
    """Record an act in the transaction that carries it out."""
    await connection.execute(
        sa.insert(audit).values(
            audit_id=uuid7(),
            experiment_id=experiment.experiment_id,
            name=experiment.name,
            act=act,
            made_by=actor.by,
            reason=actor.reason,
            key_id=actor.key_id,
            created_at=DatabaseNow(),
        )
    )


class AuditTrail:
    """Reads the audit trail."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_experiment(self, experiment_id: str) -> list[AuditRecord]:
        """The acts on an experiment, in order."""
        query = sa.select(*COLUMNS).where(audit.c.experiment_id == experiment_id)
        return await self._read(query.order_by(audit.c.audit_id))

    async def newest(self, tenant_scope: TenantScope, limit: int) -> list[AuditRecord]:
        """The acts on experiments of a tenant scope, including deleted ones, the newest first."""
        query = sa.select(*COLUMNS).where(is_within(audit.c.name, tenant_scope))
        return await self._read(query.order_by(audit.c.audit_id.desc()).limit(limit))

    async def _read(self, query: sa.Select[*tuple[Any, ...]]) -> list[AuditRecord]:
        rows = await self._database.rows(query)
        return [
            AuditRecord(experiment_id, name, act, Actor(by, reason, key_id), moment)
            for experiment_id, name, act, by, reason, key_id, moment in rows
        ]
