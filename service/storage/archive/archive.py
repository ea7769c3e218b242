"""Reads archived rounds. What is missing in the table of events is looked for here.

A segment is entered in the manifest before its rows are deleted. So whoever reads the table first, and
the manifest afterwards, misses nothing.
"""

import asyncio
from collections.abc import Collection, Iterable, Sequence

import sqlalchemy as sa

from service.errors import DamagedArchive
from service.records import Domain, EventKind, StoredEvent
from service.storage.archive.files import ArchiveFiles
from service.storage.archive.manifest import COLUMNS, Segment
from service.storage.archive.request_keys import hashed
from service.storage.archive.segment_file import (
    Archived,
    SegmentTable,
    read_segment,
)
from service.storage.database import Database
from service.storage.events.search import one_of
from service.storage.tables import archived_requests, experiments, log_segments

TIMEOUT_SECONDS = 10.0


class Archive:
    """The archived rounds of all experiments."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def files(self) -> ArchiveFiles:
        """Where the files are; raises `DamagedArchive` if no place is set."""
        place = self._database.options.archive_place
        if place is None:
            raise DamagedArchive(
                "No folder of archived rounds is set: DABAND_ARCHIVE_DIR names it."
            )
        return ArchiveFiles(place)

    async def segments(
        self, experiment_id: str | None, *conditions: sa.ColumnElement[bool]
    ) -> list[Segment]:
        """The manifest of an experiment, or of all, in order."""
        query = (
            sa.select(*COLUMNS)
            .where(*conditions)
            .order_by(log_segments.c.experiment_id, log_segments.c.last_offset)
        )
        if experiment_id is not None:
            query = query.where(log_segments.c.experiment_id == experiment_id)
        rows = await self._database.rows(query, TIMEOUT_SECONDS)
        return [Segment(*row) for row in rows]

    async def reach(self, experiment_id: str) -> int:
        """The offset up to which rounds are archived."""
        query = sa.select(experiments.c.archived_offset).where(
            experiments.c.experiment_id == experiment_id
        )
        found = await self._database.scalar(query, TIMEOUT_SECONDS)
        return int(found or 0)

    async def erase(self, experiment_id: str) -> None:
        """Remove all files of an experiment, those of a run that was killed included.

        Its folder goes last, when the manifest is empty: one that is missing earlier is not mounted.
        """
        if await self.segments(experiment_id):
            await asyncio.to_thread(self.files.empty, experiment_id)
        elif self._database.options.archive_place is not None:
            await asyncio.to_thread(self.files.remove_all, experiment_id)

    async def check(self, experiment_id: str, up_to: int) -> None:
        """Raise `DamagedArchive` if a file with events up to this offset is missing or has changed."""
        for segment in await self.segments(experiment_id, log_segments.c.first_offset <= up_to):
            await asyncio.to_thread(self.files.check, segment.place, segment.sha256)

    async def between(self, experiment_id: str, after: int, up_to: int) -> list[Archived]:
        """The archived events with `after` < offset ≤ `up_to`, in order."""
        found: list[Archived] = []
        for segment in await self.segments(
            experiment_id, log_segments.c.last_offset > after, log_segments.c.first_offset <= up_to
        ):
            table = await self._table(segment)
            found += await asyncio.to_thread(table.between, after, up_to)
        return found

    async def at(self, experiment_id: str, offsets: Collection[int]) -> dict[int, Archived]:
        """The archived events at these offsets."""
        if not offsets:
            return {}
        found: dict[int, Archived] = {}
        for segment in await self.segments(
            experiment_id,
            log_segments.c.last_offset >= min(offsets),
            log_segments.c.first_offset <= max(offsets),
        ):
            here = [n for n in offsets if segment.first_offset <= n <= segment.last_offset]
            if here:
                events = await asyncio.to_thread((await self._table(segment)).at, here)
                found |= {each.event.offset: each for each in events}
        return found

    async def decisions(
        self, decision_ids: Collection[str], experiment_id: str | None = None
    ) -> dict[str, Archived]:
        """The archived decisions that have these ids, of one experiment or of all."""
        keys = {each.encode(): each for each in decision_ids}
        if not keys:
            return {}
        found: dict[str, Archived] = {}
        for segment in await self.segments(
            experiment_id,
            log_segments.c.first_key <= max(keys),
            log_segments.c.last_key >= min(keys),
        ):
            if segment.may_have(keys):
                table, wanted = await self._table(segment), list(keys.values())
                events = await asyncio.to_thread(table.of_keys, EventKind.DECISION.value, wanted)
                found |= {each.event.event_key: each for each in events}
        return found

    async def pairs(self, experiment_id: str, events: Iterable[Archived]) -> list[StoredEvent]:
        """The archived rewards of decisions, or decisions of rewards."""
        offsets = {each.pair_offset for each in events if each.pair_offset is not None}
        return [each.event for each in (await self.at(experiment_id, offsets)).values()]

    async def requests(self, experiment_id: str, request_ids: Sequence[str]) -> list[StoredEvent]:
        """The archived decisions of these requests, in order."""
        mine = sa.select(archived_requests.c.event_offset).where(
            archived_requests.c.experiment_key == hashed(experiment_id)
        )
        keys = [hashed(each) for each in request_ids]
        asked = one_of(self._database.dialect, mine, archived_requests.c.request_key, keys)
        rows = await self._database.rows(asked, TIMEOUT_SECONDS)
        # The sides of a round follow one another.
        offsets = {place for (offset,) in rows for place in (offset, offset + 1)}
        found = await self.at(experiment_id, offsets)
        wanted = set(request_ids)
        return [found[n].event for n in sorted(found) if found[n].event.request_id in wanted]

    async def target_rewards(self, experiment_id: str) -> dict[int, float]:
        """The archived rewards of target decisions, by offset."""
        found: dict[int, float] = {}
        for segment in await self.segments(experiment_id, log_segments.c.target_rewards > 0):
            found |= (await self._table(segment)).rewards_of(Domain.TARGET.value)
        return found

    async def _table(self, segment: Segment) -> SegmentTable:
        return await asyncio.to_thread(read_segment, self.files, segment.place, segment.sha256)
