"""The rounds that the next file takes from the table of events."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from service.records import EventKind, StoredEvent
from service.storage.archive.archive import Archive
from service.storage.archive.segment_file import Archived
from service.storage.database import Database
from service.storage.events.append_plan import ROUNDS
from service.storage.events.rows import event_columns, fetch_by_keys, fetch_events
from service.storage.tables import events

TIMEOUT_SECONDS = 60.0
IS_ROUND = events.c.kind.in_([kind.value for kind in ROUNDS])


@dataclass(frozen=True, slots=True)
class ArchivingOptions:
    """Bounds of a file, and of the transactions between which selects are served."""

    segment_events: int = 32_768
    segment_bytes: int = 16 << 20
    rows_a_step: int = 1000
    pause_seconds: float = 0.01


class NextRounds:
    """Reads the oldest rounds of a log that are in the table."""

    def __init__(self, database: Database, archive: Archive, options: ArchivingOptions) -> None:
        self._database = database
        self._archive = archive
        self._options = options

    async def read(
        self, experiment_id: str, start: int, end: int, made_before: datetime
    ) -> list[Archived]:
        """At most one file of rounds with start < offset ≤ end, decisions paired with rewards."""
        some = await self._rows(experiment_id, start)
        taken = some[: _count(some, end, made_before)]
        decisions = {each.event_key: each.offset for each in taken if _is_decision(each)}
        rewards = await self._rewards(decisions)
        rewarded = {each.event_key for each in taken if not _is_decision(each)}
        earlier = await self._archive.decisions(rewarded - decisions.keys(), experiment_id)
        decisions |= {key: each.event.offset for key, each in earlier.items()}
        return [
            Archived(each, (rewards if _is_decision(each) else decisions).get(each.event_key))
            for each in taken
        ]

    async def _rows(self, experiment_id: str, start: int) -> list[StoredEvent]:
        """The rounds behind an offset, about as many as one file holds, and one more."""
        query = (
            sa.select(*event_columns(with_context=True))
            .where(events.c.experiment_id == experiment_id, IS_ROUND)
            .order_by(events.c.event_offset)
        )
        found: list[StoredEvent] = []
        size, most = 0, self._options.segment_events + 1
        while len(found) < most and size <= self._options.segment_bytes:
            after = found[-1].offset if found else start
            page = query.where(events.c.event_offset > after).limit(
                min(self._options.rows_a_step, most - len(found))
            )
            some = await fetch_events(self._database, page, TIMEOUT_SECONDS)
            if not some:
                break
            found += some
            size += sum(len(each.payload) + len(each.context or b"") for each in some)
        return found

    async def _rewards(self, decision_ids: Collection[str]) -> dict[str, int]:
        """The offsets of the decisions' rewards: later than theirs, so they are in the table."""
        found = await fetch_by_keys(
            self._database, EventKind.REWARD, decision_ids, timeout_seconds=TIMEOUT_SECONDS
        )
        return {each.event_key: each.offset for each in found}


def rounds_between(experiment_id: str, after: int, up_to: int) -> sa.ColumnElement[bool]:
    """The rows of the table that are rounds, with `after` < offset ≤ `up_to`."""
    return sa.and_(
        events.c.experiment_id == experiment_id,
        events.c.event_offset > after,
        events.c.event_offset <= up_to,
        IS_ROUND,
    )


def _is_decision(event: StoredEvent) -> bool:
    return event.kind is EventKind.DECISION


def _count(some: Sequence[StoredEvent], end: int, made_before: datetime) -> int:
    """How many of these events the next file takes, not the last; the sides of a round stay together."""
    count = 0
    for each in some[:-1]:
        if each.offset > end or each.created_at >= made_before:
            break
        count += 1
    while count and _are_sides(some[count - 1], some[count]):
        count -= 1
    return count


def _are_sides(first: StoredEvent, second: StoredEvent) -> bool:
    return first.request_id is not None and first.request_id == second.request_id
