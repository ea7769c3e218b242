"""Moves archived rounds back into the table of events: for late rewards, or to do without the files.

All rows are written first, then the manifest is taken back, the newest file first, and then the files go.
In between a round is in both tiers, as while it is archived. Readers look into the table, the manifest and
a file, in this order: those that are at it are waited for. Killed at any point, nothing is lost: the same
command goes on, and the next archiving deletes the rows of files that are still in the manifest.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.records import Experiment
from service.storage.archive.archive import Archive
from service.storage.archive.archiving import Moved
from service.storage.archive.files import ArchivingError
from service.storage.archive.manifest import Segment, hold, is_of, request_rows
from service.storage.archive.next_rounds import ArchivingOptions, rounds_between
from service.storage.archive.segment_file import Archived
from service.storage.database import Database
from service.storage.events.rows import COLUMNS, chunks, event_values
from service.storage.experiments import lock_experiment
from service.storage.tables import archived_requests, events, experiments, log_segments

TIMEOUT_SECONDS = 60.0
READERS_SECONDS = 15.0  # longer than a reader's time limit

Wait = Callable[[], Awaitable[None]]


async def wait_for_readers() -> None:
    """Wait until all have ended that are reading now."""
    await asyncio.sleep(READERS_SECONDS)


class Returning:
    """Moves the archived rounds of one experiment at a time. Rewards and selects go on meanwhile."""

    def __init__(
        self,
        database: Database,
        options: ArchivingOptions | None = None,
        wait: Wait = wait_for_readers,
    ) -> None:
        self._database = database
        self._archive = Archive(database)
        self._options = options or ArchivingOptions()
        self._wait_for_readers = wait

    async def run(
        self,
        experiment: Experiment,
        on_progress: Callable[[int, int], None] = lambda offset, last: None,
    ) -> Moved:
        """Move all archived rounds back, and remove their files; raises `DamagedArchive` before that."""
        experiment_id, files = experiment.experiment_id, self._archive.files
        with files.alone(experiment_id):
            segments = await self._archive.segments(experiment_id)
            for segment in segments:
                await self._insert(segment)
                on_progress(segment.last_offset, segments[-1].last_offset)
            if segments:
                await self._wait_for_readers()
            for segment in reversed(segments):
                rounds = await self._rounds(segment)
                await self._write(partial(_take_back, segment))
                await self._forget_requests(experiment_id, rounds)
            if segments:
                await self._wait_for_readers()
            for segment in segments:
                await asyncio.to_thread(files.remove, segment.place)
        return Moved.of(segments)

    async def _insert(self, segment: Segment) -> None:
        """Write the rows that are not there; a run that was killed may have written some."""
        rows = [
            dict(zip(COLUMNS, event_values(each.event), strict=True))
            for each in await self._rounds(segment)
        ]
        for some in chunks(rows, self._options.rows_a_step):
            await self._write(partial(_insert_missing, segment, some))

    async def _rounds(self, segment: Segment) -> list[Archived]:
        first = segment.first_offset - 1
        return await self._archive.between(segment.experiment_id, first, segment.last_offset)

    async def _forget_requests(self, experiment_id: str, rounds: Sequence[Archived]) -> None:
        """Delete the keys of requests, which lead nowhere by now."""
        keys = archived_requests.primary_key.columns
        for some in chunks(request_rows(experiment_id, rounds), self._options.rows_a_step):
            its_own = sa.delete(archived_requests).where(sa.tuple_(*keys).in_(some))
            await self._write(partial(_executed, its_own))

    async def _write(self, work: Callable[[AsyncConnection], Any]) -> None:
        await self._database.write(work, TIMEOUT_SECONDS)
        await asyncio.sleep(self._options.pause_seconds)


async def _executed(statement: sa.Delete, connection: AsyncConnection) -> None:
    await connection.execute(statement)


async def _insert_missing(
    segment: Segment, rows: Sequence[dict[str, Any]], connection: AsyncConnection
) -> None:
    await hold(connection, segment)
    offsets = [row["event_offset"] for row in rows]
    query = sa.select(events.c.event_offset).where(
        rounds_between(segment.experiment_id, offsets[0] - 1, offsets[-1])
    )
    there = set(await connection.scalars(query))
    missing = [row for row in rows if row["event_offset"] not in there]
    if missing:
        await connection.execute(sa.insert(events), missing)


async def _take_back(segment: Segment, connection: AsyncConnection) -> None:
    """Take the newest file out of the manifest, if the table has all of its rounds."""
    row = await lock_experiment(connection, segment.experiment_id, experiments.c.archived_offset)
    if row.archived_offset != segment.last_offset:
        raise ArchivingError("the log was archived further meanwhile: run it again")
    await hold(connection, segment)
    its_own = rounds_between(segment.experiment_id, segment.first_offset - 1, segment.last_offset)
    count = sa.select(sa.func.count()).select_from(events).where(its_own)
    if await connection.scalar(count) != segment.events:
        raise ArchivingError("rows were deleted meanwhile: run it again")
    await connection.execute(sa.delete(log_segments).where(is_of(segment)))
    moved = sa.update(experiments).where(experiments.c.experiment_id == segment.experiment_id)
    await connection.execute(moved.values(archived_offset=segment.first_offset - 1))
