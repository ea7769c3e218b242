"""Moves the oldest rounds of a log into files: the file first, then the manifest, then the deletion.

Killed at any point, nothing is lost or doubled. Rows that the manifest has already are deleted by the
next run. A file without a row in the manifest is removed by it, once the manifest has passed its rounds:
until then it may be another run's.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import UnknownExperiment
from service.ops.failpoints import Failpoint, reach
from service.records import EventKind, Experiment, Status
from service.storage.archive.archive import Archive
from service.storage.archive.checking import check
from service.storage.archive.files import ArchivingError
from service.storage.archive.manifest import (
    LateRewardError,
    Segment,
    enter,
    hold,
    insert_requests,
    request_rows,
    segment_of,
)
from service.storage.archive.next_rounds import ArchivingOptions, NextRounds, rounds_between
from service.storage.archive.segment_file import Archived, decoded, encoded, first_offset_of
from service.storage.database import Database
from service.storage.events.rows import chunks
from service.storage.tables import events, experiments

TIMEOUT_SECONDS = 60.0


class Moved(NamedTuple):
    """How much some files hold."""

    events: int
    files: int
    size_bytes: int

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> "Moved":
        """The sums over files."""
        events = sum(each.events for each in segments)
        return cls(events, len(segments), sum(each.size_bytes for each in segments))


class Archiving:
    """Archives rounds of one experiment at a time. Rewards and selects go on meanwhile."""

    def __init__(self, database: Database, options: ArchivingOptions | None = None) -> None:
        self._database = database
        self._archive = Archive(database)
        self._options = options or ArchivingOptions()
        self._next_rounds = NextRounds(database, self._archive, self._options)

    async def run(
        self,
        experiment: Experiment,
        made_before: datetime,
        kept: int = 0,
        on_progress: Callable[[int, int], None] = lambda offset, last: None,
    ) -> Moved:
        """Archive rounds that are older than a moment, folded, and not among the newest `kept` events."""
        experiment_id = experiment.experiment_id
        with self._archive.files.alone(experiment_id):
            await self._finish(experiment_id)
            moved: list[Segment] = []
            while (segment := await self._next(experiment_id, made_before, kept)) is not None:
                moved.append(segment)
                on_progress(segment.last_offset, experiment.head_offset - kept)
            await self._remove_others(experiment_id)
        return Moved.of(moved)

    async def _finish(self, experiment_id: str) -> None:
        """Delete the rows that files have already."""
        segments = await self._archive.segments(experiment_id)
        if not segments:
            return
        # A folder that is not mounted, or another one, does not have it: then nothing is moved.
        await check(self._archive.files, segments[-1])
        first = await self._first_row(experiment_id, segments[-1].last_offset)
        for segment in segments:
            if first is not None and segment.last_offset >= first:
                await self._delete_rows(segment)

    async def _remove_others(self, experiment_id: str) -> None:
        """Remove files of archived rounds that the manifest does not name."""
        files = self._archive.files
        segments = await self._archive.segments(experiment_id)
        known = {each.place for each in segments}
        up_to = segments[-1].last_offset if segments else 0
        for name in await asyncio.to_thread(files.names, experiment_id):
            first = first_offset_of(name)
            if name not in known and first is not None and first <= up_to:
                await asyncio.to_thread(files.remove, name)

    async def _next(self, experiment_id: str, made_before: datetime, kept: int) -> Segment | None:
        """Archive one more file; None when nothing is left to archive."""
        while True:
            start, end, head = await self._bounds(experiment_id, kept)
            rounds = await self._next_rounds.read(experiment_id, start, end, made_before)
            if not rounds:
                return None
            content = await asyncio.to_thread(_verified, rounds)
            segment = segment_of(experiment_id, start + 1, rounds, content)
            files = self._archive.files
            await asyncio.to_thread(files.write, segment.place, content)
            reach(Failpoint.BEFORE_MANIFEST)
            try:
                await self._enter(segment, rounds, head)
            except (LateRewardError, UnknownExperiment) as error:
                await asyncio.to_thread(files.remove, segment.place)
                if isinstance(error, UnknownExperiment):
                    raise
                continue
            reach(Failpoint.AFTER_MANIFEST)
            await self._delete_rows(segment)
            return segment

    async def _bounds(self, experiment_id: str, kept: int) -> tuple[int, int, int]:
        """After which offset, and up to which, rounds may be archived; and the log's newest offset."""
        columns = ("archived_offset", "folded_offset", "head_offset", "status")
        query = sa.select(*(experiments.c[name] for name in columns)).where(
            experiments.c.experiment_id == experiment_id
        )
        rows = await self._database.rows(query, TIMEOUT_SECONDS)
        if not rows or rows[0].status == Status.DELETED.value:
            raise UnknownExperiment
        row = rows[0]
        return row.archived_offset, min(row.folded_offset, row.head_offset - kept), row.head_offset

    async def _enter(self, segment: Segment, rounds: Sequence[Archived], head: int) -> None:
        """Enter a file in the manifest: from then on its rounds are archived.

        The requests come first and in steps, because the last transaction holds up selects. Until it,
        they lead nowhere.
        """
        for some in chunks(request_rows(segment.experiment_id, rounds), self._options.rows_a_step):
            await self._write(partial(insert_requests, some))
        open_decisions = {
            each.event.event_key
            for each in rounds
            if each.event.kind is EventKind.DECISION and each.pair_offset is None
        }
        await self._write(lambda connection: enter(connection, segment, open_decisions, head))

    async def _delete_rows(self, segment: Segment) -> None:
        """Delete the rows of a file that can be read, in steps."""
        await check(self._archive.files, segment)
        first = segment.first_offset - 1
        for start in range(first, segment.last_offset, self._options.rows_a_step):
            end = min(start + self._options.rows_a_step, segment.last_offset)
            await self._write(partial(_delete, segment, start, end))

    async def _first_row(self, experiment_id: str, up_to: int) -> int | None:
        """The offset of the first archived round whose row is still in the table."""
        query = (
            sa.select(events.c.event_offset)
            .where(rounds_between(experiment_id, 0, up_to))
            .order_by(events.c.event_offset)
            .limit(1)
        )
        found: int | None = await self._database.scalar(query, TIMEOUT_SECONDS)
        return found

    async def _write(self, work: Callable[[AsyncConnection], Awaitable[Any]]) -> None:
        await self._database.write(work, TIMEOUT_SECONDS)
        await asyncio.sleep(self._options.pause_seconds)


async def _delete(segment: Segment, after: int, up_to: int, connection: AsyncConnection) -> None:
    """Delete rows that the manifest has, and goes on to have until they are deleted."""
    await hold(connection, segment)
    await connection.execute(
        sa.delete(events).where(rounds_between(segment.experiment_id, after, up_to))
    )


def _verified(rounds: Sequence[Archived]) -> bytes:
    """The bytes of a file from which the same events are read."""
    content = encoded(rounds)
    table = decoded(content)
    if table.between(0, rounds[-1].event.offset) != list(rounds):
        raise ArchivingError("the file would not give back the events")
    return content
