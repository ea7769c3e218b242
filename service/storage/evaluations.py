"""Evaluations as durable jobs: queued, claimed by one process at a time, ended once.

If a process dies, its claim expires and another process restarts the job. An evaluation depends on the log
alone, so only time is lost.
"""

from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.auth.tenants import TenantScope
from service.errors import RequestConflict, UnknownEvaluation
from service.records import Evaluation, EvaluationStatus, uuid7
from service.storage.database import Database
from service.storage.tables import (
    DatabaseNow,
    columns_without,
    database_now,
    evaluations,
    experiments,
)
from service.storage.tenants import is_within

COLUMNS = columns_without(evaluations, "holder", "expires_at")
OPEN = (EvaluationStatus.QUEUED.value, EvaluationStatus.RUNNING.value)
RESULT_TIMEOUT_SECONDS = 10.0


class Evaluations:
    """The queue and the results of evaluations."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, experiment_id: str, request: str, request_id: str | None
    ) -> tuple[Evaluation, bool]:
        """The new job and true, or the existing job of the same request and false."""

        async def insert(connection: AsyncConnection) -> tuple[Evaluation, bool]:
            if request_id is not None:
                same = sa.and_(
                    evaluations.c.experiment_id == experiment_id,
                    evaluations.c.request_id == request_id,
                )
                found = await _find(connection, same)
                if found is not None:
                    if found.request != request:
                        raise RequestConflict
                    return found, False
            return await _new(connection, experiment_id, request, request_id=request_id), True

        return await self._database.write(insert)

    async def create_claimed(
        self, experiment_id: str, request: str, holder: str, ttl_seconds: float
    ) -> Evaluation:
        """A new job that the holder runs itself."""

        async def insert(connection: AsyncConnection) -> Evaluation:
            expires_at = await database_now(connection) + timedelta(seconds=ttl_seconds)
            claim = {
                "status": EvaluationStatus.RUNNING.value,
                "holder": holder,
                "expires_at": expires_at,
            }
            return await _new(connection, experiment_id, request, **claim)

        return await self._database.write(insert)

    async def get(self, evaluation_id: str, tenant_scope: TenantScope) -> Evaluation:
        """The evaluation in the tenant scope; raises `UnknownEvaluation`."""
        return await self._database.read(
            lambda connection: _get(connection, evaluation_id, tenant_scope), RESULT_TIMEOUT_SECONDS
        )

    async def list(
        self, limit: int, tenant_scope: TenantScope, experiment_id: str | None = None
    ) -> list[Evaluation]:
        """The newest evaluations of a tenant scope, or of an experiment in it, without their results."""
        columns = [*COLUMNS[:-1], sa.null().label("result")]
        query = (
            sa.select(*columns)
            .where(_is_of(tenant_scope))
            .order_by(evaluations.c.created_at.desc(), evaluations.c.evaluation_id.desc())
            .limit(limit)
        )
        if experiment_id is not None:
            query = query.where(evaluations.c.experiment_id == experiment_id)
        rows = await self._database.rows(query)
        return [_evaluation(row) for row in rows]

    async def claim(self, holder: str, ttl_seconds: float) -> Evaluation | None:
        """Claim the oldest unclaimed job for the holder; None if there is none."""

        async def take(connection: AsyncConnection) -> Evaluation | None:
            now = await database_now(connection)
            is_abandoned = sa.and_(
                evaluations.c.status == EvaluationStatus.RUNNING.value,
                evaluations.c.expires_at < now,
            )
            query = (
                sa.select(evaluations.c.evaluation_id)
                .where(sa.or_(evaluations.c.status == EvaluationStatus.QUEUED.value, is_abandoned))
                .order_by(evaluations.c.created_at, evaluations.c.evaluation_id)
                .limit(1)
                .with_for_update(skip_locked=True)
            )
            found = await connection.scalar(query)
            if found is None:
                return None
            await connection.execute(
                _change(found).values(
                    status=EvaluationStatus.RUNNING.value,
                    holder=holder,
                    expires_at=now + timedelta(seconds=ttl_seconds),
                )
            )
            return await _get(connection, found)

        return await self._database.write(take)

    async def advance(
        self, evaluation_id: str, holder: str, progress: tuple[int, int], ttl_seconds: float
    ) -> bool:
        """Record progress and renew the claim; false if the job was cancelled or reclaimed."""

        async def note(connection: AsyncConnection) -> bool:
            now = await database_now(connection)
            done, total = progress
            changed = await connection.execute(
                _own(evaluation_id, holder).values(
                    done=done, total=total, expires_at=now + timedelta(seconds=ttl_seconds)
                )
            )
            return changed.rowcount == 1

        return await self._database.write(note)

    async def finish(self, evaluation_id: str, holder: str, result: str) -> bool:
        """Store the result; false if the job was cancelled or reclaimed."""
        return await self._end(evaluation_id, holder, EvaluationStatus.DONE, result=result)

    async def fail(self, evaluation_id: str, holder: str, problem: str) -> bool:
        """Store the reason of a failure."""
        return await self._end(evaluation_id, holder, EvaluationStatus.FAILED, problem=problem)

    async def cancel(self, evaluation_id: str, tenant_scope: TenantScope) -> Evaluation:
        """Cancel a job of the tenant scope, unless it has ended."""

        async def stop(connection: AsyncConnection) -> Evaluation:
            await connection.execute(
                _change(evaluation_id)
                .where(evaluations.c.status.in_(OPEN), _is_of(tenant_scope))
                .values(status=EvaluationStatus.CANCELLED.value, ended_at=DatabaseNow())
            )
            return await _get(connection, evaluation_id, tenant_scope)

        return await self._database.write(stop)

    async def _end(
        self, evaluation_id: str, holder: str, status: EvaluationStatus, **values: str
    ) -> bool:
        async def end(connection: AsyncConnection) -> bool:
            changed = await connection.execute(
                _own(evaluation_id, holder).values(
                    status=status.value, ended_at=DatabaseNow(), **values
                )
            )
            return changed.rowcount == 1

        return await self._database.write(end, RESULT_TIMEOUT_SECONDS)


async def _new(
    connection: AsyncConnection, experiment_id: str, request: str, **values: Any
) -> Evaluation:
    evaluation_id = uuid7()
    row = {
        "evaluation_id": evaluation_id,
        "experiment_id": experiment_id,
        "request": request,
        "status": EvaluationStatus.QUEUED.value,
        "created_at": DatabaseNow(),
    }
    await connection.execute(sa.insert(evaluations).values(row | values))
    return await _get(connection, evaluation_id)


def _change(evaluation_id: str) -> Any:
    return sa.update(evaluations).where(evaluations.c.evaluation_id == evaluation_id)


def _own(evaluation_id: str, holder: str) -> Any:
    return _change(evaluation_id).where(
        evaluations.c.holder == holder, evaluations.c.status == EvaluationStatus.RUNNING.value
    )


def _is_of(tenant_scope: TenantScope) -> sa.ColumnElement[bool]:
    known = sa.select(experiments.c.experiment_id).where(
        is_within(experiments.c.name, tenant_scope)
    )
    return evaluations.c.experiment_id.in_(known)


async def _get(
    connection: AsyncConnection, evaluation_id: str, tenant_scope: TenantScope | None = None
) -> Evaluation:
    is_it = evaluations.c.evaluation_id == evaluation_id
    found = await _find(connection, is_it if tenant_scope is None else is_it & _is_of(tenant_scope))
    if found is None:
        raise UnknownEvaluation
    return found


async def _find(
    connection: AsyncConnection, condition: sa.ColumnElement[bool]
) -> Evaluation | None:
    row = (await connection.execute(sa.select(*COLUMNS).where(condition))).one_or_none()
    return None if row is None else _evaluation(row)


def _evaluation(row: Any) -> Evaluation:
    evaluation_id, experiment_id, request_id, request, status, *rest = row
    return Evaluation(
        evaluation_id, experiment_id, request_id, request, EvaluationStatus(status), *rest
    )
