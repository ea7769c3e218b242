"""The statements of the transaction that appends, for each of the two databases."""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.records import EventKind, Phase, Status, StoredEvent
from service.storage.append_plan import LockedExperiment
from service.storage.event_rows import (
    event_columns,
    event_values,
    fetch_by_keys,
    fetch_by_requests,
)
from service.storage.tables import DatabaseNow, events, experiments, padded


class Locked(NamedTuple):
    """Experiments that nobody else appends to until the transaction ends, and the database's time."""

    experiments: list[LockedExperiment]
    now: datetime | None


class AppendSession(Protocol):
    """An open transaction."""

    async def lock(self, experiment_ids: Sequence[str]) -> Locked:
        """Lock these experiments, in their order."""
        ...

    async def by_keys(self, kind: EventKind, keys: Sequence[str]) -> list[StoredEvent]:
        """The events of a kind that have one of these keys, without their contexts."""
        ...

    async def by_requests(
        self, experiment_id: str, request_ids: Sequence[str]
    ) -> list[StoredEvent]:
        """The events of these requests, in log order, without their contexts."""
        ...

    async def insert(
        self,
        new_events: Sequence[StoredEvent],
        changed: Iterable[LockedExperiment],
        on_sent: Callable[[], None],
    ) -> None:
        """Write events, and how far their experiments' logs now reach.

        `on_sent` is told when the database has many of them and works on them.
        """
        ...


_COLUMNS = [column.name for column in event_columns(with_context=True)]
INSERT = f"""
INSERT INTO {events.name} ({", ".join(_COLUMNS)}) VALUES ({", ".join("?" * len(_COLUMNS))})
"""  # noqa: S608


class SqlSession:
    """Through SQLAlchemy, for SQLite; events are written past its types, which cost more than the file."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def begun(cls, connection: AsyncConnection) -> AsyncIterator["SqlSession"]:
        """The transaction that the connection is in."""
        yield cls(connection)

    async def lock(self, experiment_ids: Sequence[str]) -> Locked:
        query = (
            sa.select(
                experiments.c.experiment_id,
                experiments.c.phase,
                experiments.c.status,
                experiments.c.head_offset,
                experiments.c.epoch,
                DatabaseNow(),
            )
            .where(experiments.c.experiment_id.in_(padded(experiment_ids)))
            .order_by(experiments.c.experiment_id)
        )
        return locked((await self._connection.execute(query)).all())

    async def by_keys(self, kind: EventKind, keys: Sequence[str]) -> list[StoredEvent]:
        return await fetch_by_keys(self._connection, kind, keys, with_context=False)

    async def by_requests(
        self, experiment_id: str, request_ids: Sequence[str]
    ) -> list[StoredEvent]:
        return await fetch_by_requests(self._connection, experiment_id, request_ids)

    async def insert(
        self,
        new_events: Sequence[StoredEvent],
        changed: Iterable[LockedExperiment],
        on_sent: Callable[[], None],
    ) -> None:
        rows = [_row(each) for each in new_events]
        on_sent()  # a thread has them next
        await self._connection.exec_driver_sql(INSERT, rows)
        statement = (
            sa.update(experiments)
            .where(experiments.c.experiment_id == sa.bindparam("id"))
            .values(head_offset=sa.bindparam("head"), phase=sa.bindparam("new_phase"))
        )
        heads = [
            {"id": each.experiment_id, "head": each.head_offset, "new_phase": each.phase.value}
            for each in changed
        ]
        await self._connection.execute(statement, heads)


def _row(event: StoredEvent) -> tuple[Any, ...]:
    return (*event_values(event)[:-1], _moment(event.created_at))


@lru_cache(maxsize=16)
def _moment(moment: datetime) -> str:
    """As `UtcDateTime` keeps it in SQLite."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"


def locked(rows: Iterable[Sequence[Any]]) -> Locked:
    """From rows of id, phase, status, head, epoch and the time."""
    found: list[LockedExperiment] = []
    now: datetime | None = None
    for experiment_id, phase, status, head, epoch, moment in rows:
        found.append(LockedExperiment(experiment_id, Phase(phase), Status(status), head, epoch))
        now = moment if now is None else max(now, moment)
    return Locked(found, now)
