"""Erases what deleted experiments have left: a part of a log at a time, so that nobody waits long."""

import asyncio
import logging
from dataclasses import replace

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StorageUnavailable
from service.records import Actor, Experiment, Status
from service.storage.audit import write_act
from service.storage.database import Database
from service.storage.experiments import COLUMNS, experiment_of
from service.storage.tables import (
    audit,
    candidates,
    evaluations,
    events,
    experiments,
    learning_failures,
    snapshots,
    transfers,
)

ERASED = "erased"
EVENTS_A_STEP = 1000
TIMEOUT_SECONDS = 10.0
OTHERS = (snapshots, candidates, transfers, evaluations, learning_failures)

log = logging.getLogger(__name__)


class Erasing:
    """Finds deleted experiments every `poll_seconds` and erases them, with pauses in between."""

    def __init__(
        self, database: Database, poll_seconds: float = 2.0, pause_seconds: float = 0.05
    ) -> None:
        self._database = database
        self._poll_seconds = poll_seconds
        self._pause_seconds = pause_seconds

    async def run(self) -> None:
        """Erase until cancelled; meant for a supervisor."""
        while True:
            try:
                has_more = await self.step()
            except StorageUnavailable:
                log.warning("storage is away", extra={"action": "erasing_waits"})
                has_more = False
            await asyncio.sleep(self._pause_seconds if has_more else self._poll_seconds)

    async def step(self) -> bool:
        """Erase a part of one deleted experiment; whether there was one."""
        return await self._database.write(_erase_some, TIMEOUT_SECONDS)


async def _erase_some(connection: AsyncConnection) -> bool:
    deleted = sa.select(*COLUMNS).where(experiments.c.status == Status.DELETED.value).limit(1)
    row = (await connection.execute(deleted)).one_or_none()
    if row is None:
        return False
    if connection.dialect.name == "sqlite":
        # What is freed is overwritten, not only marked as free.
        await connection.exec_driver_sql("PRAGMA secure_delete = ON")
    experiment = experiment_of(row)
    if await _erase_events(connection, experiment.experiment_id):
        return True
    for table in (*OTHERS, experiments):
        mine = table.c.experiment_id == experiment.experiment_id
        await connection.execute(sa.delete(table).where(mine))
    await write_act(connection, await _as_named(connection, experiment), ERASED, Actor())
    log.info(
        "an experiment was erased",
        extra={"action": "experiment_erased", "experiment_id": experiment.experiment_id},
    )
    return True


async def _as_named(connection: AsyncConnection, experiment: Experiment) -> Experiment:
    """The experiment under the name that it was deleted by."""
    query = sa.select(audit.c.name).where(
        audit.c.experiment_id == experiment.experiment_id, audit.c.act == Status.DELETED.value
    )
    name = await connection.scalar(query)
    return experiment if name is None else replace(experiment, name=name)


async def _erase_events(connection: AsyncConnection, experiment_id: str) -> bool:
    """Erase the oldest events; whether there were any."""
    mine = events.c.experiment_id == experiment_id
    first = await connection.scalar(sa.select(sa.func.min(events.c.event_offset)).where(mine))
    if first is None:
        return False
    old = events.c.event_offset < first + EVENTS_A_STEP
    await connection.execute(sa.delete(events).where(mine, old))
    return True
