"""Learning failures: which experiments fail, why, and when they are retried."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.records import FailureStage, LearningFailure
from service.storage.database import Database
from service.storage.tables import (
    DatabaseNow,
    columns_without,
    database_now,
    experiments,
    learning_failures,
)

LONGEST_PAUSE = timedelta(hours=1)
LONGEST_REASON = 1000


class LearningFailures:
    """One row for each experiment whose learning currently fails."""

    def __init__(self, database: Database, first_pause_seconds: float = 30.0) -> None:
        self._database = database
        self._first_pause = timedelta(seconds=first_pause_seconds)

    async def record(self, experiment_id: str, stage: FailureStage, reason: str) -> LearningFailure:
        """Record a failure; the pause doubles each time, up to an hour."""

        async def note(connection: AsyncConnection) -> LearningFailure:
            now = await database_now(connection)
            before = _failure((await connection.execute(_current(experiment_id))).all())
            failure = self._next(before, stage, reason[:LONGEST_REASON], now)
            await connection.execute(_of(experiment_id))
            await connection.execute(
                sa.insert(learning_failures).values(
                    experiment_id=experiment_id,
                    stage=failure.stage.value,
                    reason=failure.reason,
                    failures=failure.failures,
                    since=failure.since,
                    retry_at=failure.retry_at,
                )
            )
            return failure

        return await self._database.write(note)

    async def clear(self, experiment_id: str) -> None:
        """Clear the failure of an experiment that learns again."""
        await self._database.write(lambda connection: connection.execute(_of(experiment_id)))

    async def get(self, experiment_id: str) -> LearningFailure | None:
        """The experiment's current failure, if any."""
        return _failure(await self._database.rows(_current(experiment_id)))

    async def names(self) -> list[str]:
        """The full names of all failing experiments."""
        query = sa.select(experiments.c.name).join(learning_failures)
        return [name for (name,) in await self._database.rows(query)]

    def _next(
        self, before: LearningFailure | None, stage: FailureStage, reason: str, now: datetime
    ) -> LearningFailure:
        count = 1 if before is None else before.failures + 1
        pause = min(LONGEST_PAUSE, self._first_pause * 2 ** min(count - 1, 20))
        since = now if before is None else before.since
        return LearningFailure(stage, reason, count, since, now + pause, pause.total_seconds())


def _of(experiment_id: str) -> sa.Delete:
    return sa.delete(learning_failures).where(learning_failures.c.experiment_id == experiment_id)


def _current(experiment_id: str) -> sa.Select[*tuple[Any, ...]]:
    columns = columns_without(learning_failures, "experiment_id")
    query = sa.select(*columns, DatabaseNow())
    return query.where(learning_failures.c.experiment_id == experiment_id)


def _failure(rows: Sequence[sa.Row[*tuple[Any, ...]]]) -> LearningFailure | None:
    if not rows:
        return None
    stage, reason, count, since, retry_at, now = rows[0]
    pause = max(0.0, (retry_at - now).total_seconds())
    return LearningFailure(FailureStage(stage), reason, count, since, retry_at, pause)
