"""Erases the data of deleted experiments in small steps, so that no other transaction waits long."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import StorageUnavailable
from service.records import Actor, Experiment, Status
from service.storage.archive.archive import Archive
from service.storage.archive.request_keys import hashed
from service.storage.audit import write_act
from service.storage.database import Database
from service.storage.experiments import COLUMNS, experiment_of
from service.storage.tables import (
    archived_requests,
    audit,
    blob_parts,
    candidates,
    evaluations,
    events,
    experiments,
    history_parts,
    learning_failures,
    log_segments,
    snapshots,
    transfers,
)

ERASED = "erased"
TIMEOUT_SECONDS = 10.0
# The tables of an experiment's data, and the rows erased in one step; blobs are large.
ROWS_A_STEP: dict[sa.Table, int] = {
    events: 1000,
    archived_requests: 1000,
    log_segments: 1000,
    blob_parts: 4,
    snapshots: 4,
    candidates: 4,
    history_parts: 4,
    transfers: 100,
    evaluations: 10,
    learning_failures: 1,
}

Forget = Callable[[Experiment], Awaitable[None]]

log = logging.getLogger(__name__)


class Erasing:
    """Finds deleted experiments every `poll_seconds` and erases them, with pauses in between.

    `forget` drops what is cached of one: a trainer may publish a last snapshot after the deletion.
    """

    def __init__(
        self,
        database: Database,
        forget: Forget,
        poll_seconds: float = 2.0,
        pause_seconds: float = 0.05,
    ) -> None:
        self._database = database
        self._forget = forget
        self._archive = Archive(database)
        self._poll_seconds = poll_seconds
        self._pause_seconds = pause_seconds
        self._waiting: set[str] = set()  # whose files cannot be reached now

    async def run(self) -> None:
        """Erase until cancelled; meant for a supervisor."""
        while True:
            try:
                has_more = await self.step()
            except StorageUnavailable as error:
                _warn(error)
                has_more = False
            await asyncio.sleep(self._pause_seconds if has_more else self._poll_seconds)

    async def step(self) -> bool:
        """Erase a part of one deleted experiment; returns whether there was one.

        Its archived files go first, while the manifest still says that they exist. While they cannot
        be reached, it waits and the others go on.
        """
        rows = await self._database.rows(_deleted(self._waiting))
        if not rows:
            self._waiting.clear()
            return False
        experiment = experiment_of(rows[0])
        try:
            await self._archive.erase(experiment.experiment_id)
        except Exception as error:  # noqa: BLE001 - every store has errors of its own
            _warn(error)
            self._waiting.add(experiment.experiment_id)
        else:
            await self._forget(experiment)
            await self._database.write(partial(_erase_some, experiment), TIMEOUT_SECONDS)
        return True


def _warn(error: Exception) -> None:
    details = {"action": "erasing_waits", "reason": str(error)}
    log.warning("an experiment cannot be erased now", extra=details)


def _deleted(without: Collection[str]) -> sa.Select[*tuple[Any, ...]]:
    """A deleted experiment whose data is not erased yet, and that is none of these."""
    return (
        sa.select(*COLUMNS)
        .where(experiments.c.status == Status.DELETED.value)
        .where(experiments.c.experiment_id.not_in(without))
        .order_by(experiments.c.experiment_id)
        .limit(1)
    )


async def _erase_some(experiment: Experiment, connection: AsyncConnection) -> None:
    if connection.dialect.name == "sqlite":
        # Overwrite freed pages instead of only marking them as free.
        await connection.exec_driver_sql("PRAGMA secure_delete = ON")
    for table, limit in ROWS_A_STEP.items():
        if await _erase_rows(connection, table, experiment.experiment_id, limit):
            return
    mine = experiments.c.experiment_id == experiment.experiment_id
    if not (await connection.execute(sa.delete(experiments).where(mine))).rowcount:
        return  # another process was faster
    await write_act(connection, await _as_named(connection, experiment), ERASED, Actor())
    log.info(
        "an experiment was erased",
        extra={"action": "experiment_erased", "experiment_id": experiment.experiment_id},
    )


async def _as_named(connection: AsyncConnection, experiment: Experiment) -> Experiment:
    """The experiment under the name it had when it was deleted."""
    query = sa.select(audit.c.name).where(
        audit.c.experiment_id == experiment.experiment_id, audit.c.act == Status.DELETED.value
    )
    name = await connection.scalar(query)
    return experiment if name is None else replace(experiment, name=name)


def _is_of(table: sa.Table, experiment_id: str) -> sa.ColumnElement[bool]:
    if table is archived_requests:
        return table.c.experiment_key == hashed(experiment_id)
    return table.c.experiment_id == experiment_id


async def _erase_rows(
    connection: AsyncConnection, table: sa.Table, experiment_id: str, limit: int
) -> bool:
    """Erase some rows of an experiment; returns whether there were any."""
    keys = list(table.primary_key.columns)
    some = sa.select(*keys).where(_is_of(table, experiment_id)).limit(limit)
    rows = [tuple(row) for row in await connection.execute(some)]
    if rows:
        await connection.execute(sa.delete(table).where(sa.tuple_(*keys).in_(rows)))
    return bool(rows)
