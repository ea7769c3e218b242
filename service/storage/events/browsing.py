"""Pages of the log for people: decisions with their rewards, and figures by block of the log.

Each reads a bounded range of offsets, however long the log is: one statement, and archived files.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa
from msgspec.structs import replace

from service.records import Domain, EventKind, StoredEvent
from service.storage.archive.archive import Archive
from service.storage.archive.segment_file import Archived
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.events.rows import event_columns, stored_event
from service.storage.tables import events

MOST_LOOKED_AT = 5000  # events that one page looks at: a rare filter must not read the whole log
MOST_IN_A_BLOCK = 200  # events that are read of a block
TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Which decisions a page shows; None for all."""

    domain: Domain | None = None
    arm: str | None = None
    is_rewarded: bool | None = None

    def takes(self, archived: Archived) -> bool:
        """Whether an archived event is such a decision."""
        event = archived.event
        return (
            event.kind is EventKind.DECISION
            and self.domain in (None, event.domain)
            and self.arm in (None, event.arm)
            and self.is_rewarded in (None, archived.pair_offset is not None)
        )


class PairedDecision(NamedTuple):
    """A decision, without its context, and its reward if there is one."""

    decision: StoredEvent
    reward: float | None
    reward_offset: int | None
    rewarded_at: Any


class LogPage(NamedTuple):
    """Decisions, the newest first; the next page is before the offset `next_before`, if there is one."""

    pairs: list[PairedDecision]
    next_before: int | None


class BlockCount(NamedTuple):
    """The decisions or rewards of an arm in a block of the log, and the sum of the rewards."""

    block: int
    kind: EventKind
    arm: str
    amount: int
    total: float


class Browsing:
    """Reads the log for people."""

    def __init__(self, database: Database, most_looked_at: int = MOST_LOOKED_AT) -> None:
        self._database = database
        self._log = EventLog(database)
        self._archive = Archive(database)
        self._most_looked_at = most_looked_at

    async def page(self, experiment_id: str, before: int, limit: int, wanted: LogFilter) -> LogPage:
        """At most `limit` decisions before an offset. With filters a page may have fewer, or none."""
        first = max(1, before - self._most_looked_at)
        query = _pairs(experiment_id, first, before, limit, wanted)
        rows = await self._database.rows(query, TIMEOUT_SECONDS)
        found = {
            row.event_offset: PairedDecision(stored_event(row[:-3]), *row[-3:]) for row in rows
        }
        found = await self._archived(experiment_id, first, before, wanted) | found
        pairs = [found[offset] for offset in sorted(found, reverse=True)[:limit]]
        last = pairs[-1].decision.offset if len(pairs) == limit else first
        return LogPage(pairs, last if last > 1 else None)

    async def counts(
        self, experiment_id: str, domain: Domain, blocks: list[tuple[int, int]]
    ) -> list[BlockCount]:
        """Decisions and rewards by arm, in blocks of the log: each (after, up to)."""
        if not blocks:
            return []
        archived = await self._archive.reach(experiment_id)
        bounds = _bounds([(max(after, archived), up_to) for after, up_to in blocks])
        parameters = {"experiment_id": experiment_id, "domain": domain.value, **bounds}
        rows = await self._database.rows(_counts(len(blocks)), TIMEOUT_SECONDS, parameters)
        if await self._archive.reach(experiment_id) != archived:  # rows left the table meanwhile
            return await self.counts(experiment_id, domain, blocks)
        found: defaultdict[tuple[int, EventKind, str], list[float]] = defaultdict(lambda: [0, 0.0])
        for number, kind, arm, count, total in rows:
            _add(found[number, EventKind(kind), arm], count, float(total or 0))
        for number, (after, up_to) in enumerate(blocks):
            if after < archived:
                for each in await self._archive.between(experiment_id, after, min(up_to, archived)):
                    event = each.event
                    if event.domain is domain:
                        _add(found[number, event.kind, event.arm or ""], 1, event.reward or 0.0)
        return [BlockCount(*key, int(count), total) for key, (count, total) in found.items()]

    async def _archived(
        self, experiment_id: str, first: int, before: int, wanted: LogFilter
    ) -> dict[int, PairedDecision]:
        """The archived decisions of a range with their rewards, by offset."""
        archived = await self._archive.between(experiment_id, first - 1, before - 1)
        decided = [each for each in archived if wanted.takes(each)]
        offsets = [each.pair_offset for each in decided if each.pair_offset is not None]
        rewards = await self._log.events_at(experiment_id, offsets)
        return {each.event.offset: _paired(each, rewards) for each in decided}


def blocks_of(last_offset: int, count: int) -> list[tuple[int, int]]:
    """At most `count` blocks (after, up to) of a log: all of a short one, else the end of each block."""
    size = max(1, -(-last_offset // count))
    ends = ((start, min(start + size, last_offset)) for start in range(0, last_offset, size))
    return [(max(start, end - MOST_IN_A_BLOCK), end) for start, end in ends]


def _paired(decision: Archived, rewards: Mapping[int, StoredEvent]) -> PairedDecision:
    event = replace(decision.event, context=None)
    if decision.pair_offset is None:
        return PairedDecision(event, None, None, None)
    reward = rewards[decision.pair_offset]
    return PairedDecision(event, reward.reward, reward.offset, reward.created_at)


def _add(counted: list[float], count: int, total: float) -> None:
    counted[0] += count
    counted[1] += total


def _pairs(
    experiment_id: str, first: int, before: int, limit: int, wanted: LogFilter
) -> sa.Select[Any]:
    value, offset, moment = (
        _of_reward("reward"),
        _of_reward("event_offset"),
        _of_reward("created_at"),
    )
    query = (
        sa.select(*event_columns(with_context=False), value, offset, moment)
        .where(events.c.experiment_id == experiment_id, events.c.event_offset >= first)
        .where(events.c.event_offset < before, events.c.kind == EventKind.DECISION.value)
        .order_by(events.c.event_offset.desc())
        .limit(limit)
    )
    if wanted.domain is not None:
        query = query.where(events.c.domain == wanted.domain.value)
    if wanted.arm is not None:
        query = query.where(events.c.arm == wanted.arm)
    if wanted.is_rewarded is not None:
        query = query.where(offset.is_not(None) if wanted.is_rewarded else offset.is_(None))
    return query


def _of_reward(column: str) -> sa.ScalarSelect[Any]:
    """A column of the decision's reward. No join: the planner cannot make a scan of this."""
    rewards = events.alias("rewards")
    return (
        sa.select(rewards.c[column])
        .where(rewards.c.kind == EventKind.REWARD.value)
        .where(rewards.c.event_key == events.c.event_key)
        .scalar_subquery()
    )


@cache
def _counts(blocks: int) -> sa.CompoundSelect[*tuple[Any, ...]]:
    """The decisions and rewards by arm in so many blocks; building it costs more than running it."""
    return sa.union_all(*map(_counted, range(blocks)))


def _counted(number: int) -> sa.Select[*tuple[Any, ...]]:
    return (
        sa.select(
            sa.literal(number),
            events.c.kind,
            events.c.arm,
            sa.func.count(),
            sa.func.sum(events.c.reward),
        )
        .where(events.c.experiment_id == sa.bindparam("experiment_id"))
        .where(events.c.event_offset > sa.bindparam(f"after_{number}"))
        .where(events.c.event_offset <= sa.bindparam(f"up_to_{number}"))
        .where(events.c.domain == sa.bindparam("domain"))
        .where(events.c.kind.in_([EventKind.DECISION.value, EventKind.REWARD.value]))
        .group_by(events.c.kind, events.c.arm)
    )


def _bounds(blocks: Sequence[tuple[int, int]]) -> dict[str, int]:
    """The parameters of `_counts` that differ from block to block."""
    after = {f"after_{number}": block[0] for number, block in enumerate(blocks)}
    return after | {f"up_to_{number}": block[1] for number, block in enumerate(blocks)}
