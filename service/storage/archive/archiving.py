"""Moves the oldest rounds of a log into files: the file first, then the manifest, then the deletion.

Killed at any point, nothing is lost or doubled. A file without a row in the manifest is removed by the
next run. Rows that the manifest has already are deleted by it.
"""

import asyncio
import fcntl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import UnknownExperiment
from service.ops.failpoints import Failpoint, reach
from service.records import EventKind, Experiment, Status
from service.storage.archive.archive import Archive
from service.storage.archive.manifest import (
    ArchivingError,
    LateRewardError,
    Segment,
    enter,
    insert_requests,
    request_rows,
    segment_of,
)
from service.storage.archive.next_rounds import IS_ROUND, ArchivingOptions, NextRounds
from service.storage.archive.segment_file import Archived, decoded, encoded, write_durably
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
        folder = self._archive.folder / experiment_id
        with _alone(folder):
            await self._finish(experiment_id, folder)
            moved: list[Segment] = []
            while (segment := await self._next(experiment_id, made_before, kept)) is not None:
                moved.append(segment)
                on_progress(segment.last_offset, experiment.head_offset - kept)
        return Moved.of(moved)

    async def _finish(self, experiment_id: str, folder: Path) -> None:
        """Remove files that no manifest knows, and rows that files have already."""
        segments = await self._archive.segments(experiment_id)
        await asyncio.to_thread(
            _remove_others, folder, {Path(each.place).name for each in segments}
        )
        for segment in segments:
            if await self._has_rows(segment):
                await self._delete_rows(segment)

    async def _next(self, experiment_id: str, made_before: datetime, kept: int) -> Segment | None:
        """Archive one more file; None when nothing is left to archive."""
        while True:
            start, end, head = await self._bounds(experiment_id, kept)
            rounds = await self._next_rounds.read(experiment_id, start, end, made_before)
            if not rounds:
                return None
            content = await asyncio.to_thread(_verified, rounds)
            segment = segment_of(experiment_id, start + 1, rounds, content)
            path = self._archive.folder / segment.place
            await asyncio.to_thread(write_durably, path, content)
            reach(Failpoint.BEFORE_MANIFEST)
            try:
                await self._enter(segment, rounds, head)
            except (LateRewardError, UnknownExperiment) as error:
                path.unlink()
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

        async def fetch(connection: AsyncConnection) -> Any:
            return (await connection.execute(query)).one_or_none()

        row = await self._database.read(fetch, TIMEOUT_SECONDS)
        if row is None or row.status == Status.DELETED.value:
            raise UnknownExperiment
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
        await self._archive.check(segment)
        first = segment.first_offset - 1
        for start in range(first, segment.last_offset, self._options.rows_a_step):
            end = min(start + self._options.rows_a_step, segment.last_offset)
            statement = sa.delete(events).where(_rows_of(segment.experiment_id, start, end))
            await self._write(partial(_executed, statement))

    async def _has_rows(self, segment: Segment) -> bool:
        its_own = _rows_of(segment.experiment_id, segment.first_offset - 1, segment.last_offset)
        query = sa.select(events.c.event_offset).where(its_own).limit(1)
        found = await self._database.read(
            lambda connection: connection.scalar(query), TIMEOUT_SECONDS
        )
        return found is not None

    async def _write(self, work: Callable[[AsyncConnection], Awaitable[Any]]) -> None:
        await self._database.write(work, TIMEOUT_SECONDS)
        await asyncio.sleep(self._options.pause_seconds)


async def _executed(statement: sa.Delete, connection: AsyncConnection) -> None:
    await connection.execute(statement)


def _rows_of(experiment_id: str, after: int, up_to: int) -> sa.ColumnElement[bool]:
    return sa.and_(
        events.c.experiment_id == experiment_id,
        events.c.event_offset > after,
        events.c.event_offset <= up_to,
        IS_ROUND,
    )


def _verified(rounds: Sequence[Archived]) -> bytes:
    """The bytes of a file from which the same events are read."""
    content = encoded(rounds)
    table = decoded(content)
    if table.between(0, rounds[-1].event.offset) != list(rounds):
        raise ArchivingError("the file would not give back the events")
    return content


def _remove_others(folder: Path, known: set[str]) -> None:
    """Remove files that a killed run has left."""
    for file in folder.iterdir():
        if file.name not in known and file.suffix in (".parquet", ".part"):
            file.unlink()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time archives a log."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchivingError("another process archives this log") from None
        yield
