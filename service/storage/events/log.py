"""The event log: append-only, gap-free, totally ordered within an experiment."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import sqlalchemy as sa
from msgspec.structs import replace

from service.errors import DamagedArchive, ServiceError, UnknownExperiment
from service.ops import tracing
from service.ops.failpoints import Failpoint, reach
from service.records import Appended, EventKind, NewEvent, StoredEvent, part_key
from service.storage.archive.archive import Archive
from service.storage.archive.segment_file import Archived
from service.storage.database import Database
from service.storage.events import postgres, sqlite
from service.storage.events.append_plan import (
    JUST_MADE,
    ROUNDS,
    AppendCall,
    ArchiveNeeded,
    LookedUp,
    Outcome,
    have_written,
)
from service.storage.events.group_commit import CommitOptions, GroupCommit
from service.storage.events.rows import (
    chunks,
    fetch_by_keys,
    fetch_events,
    page_columns,
)
from service.storage.events.search import one_of
from service.storage.tables import LIFECYCLE, events, experiments

DECISION, REWARD = EventKind.DECISION, EventKind.REWARD
CONTEXTS_A_QUERY = 512
PAGE_TIMEOUT_SECONDS = 10.0  # pages are large, and no request waits for them


class EventLog:
    """Appends through one group commit a process, and reads what is committed.

    Offsets of an experiment are 1, 2, 3, … without gaps. A reader that has seen offset n has
    seen, or can read, all before it. `run` must be running for appends to get through.
    """

    def __init__(
        self,
        database: Database,
        options: CommitOptions | None = None,
        on_batch: Callable[[int, int, float], None] = lambda *_: None,
        on_unwritten: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._database = database
        self._archive = Archive(database)
        self._group: GroupCommit[AppendCall, list[Appended] | ArchiveNeeded] = GroupCommit(
            self._write, options, on_batch, repeat=AppendCall.repeated, on_unwritten=on_unwritten
        )

    @property
    def unwritten_count(self) -> int:
        """Events that are answered and not durable yet."""
        return self._group.unwritten_count

    async def run(self) -> None:
        """Commit what is appended, until closed; meant for a supervisor."""
        await self._group.run()

    async def close(self) -> None:
        """Take no more appends and write those that wait, as long as that may take."""
        await self._group.close()

    async def append(
        self,
        new_events: Sequence[NewEvent],
        *,
        epoch: int | None = None,
        is_answered: bool = False,
    ) -> list[Appended]:
        """Write the events of one experiment, all or none; durable when it returns.

        One result an event, in their order. An event that was there before comes back as it is
        stored, without its context, and `created` is false. With an `epoch`, the append is
        refused (`StaleEpoch`) once another trainer has taken over. Decisions that were accepted
        before (`is_answered`) are written whatever the experiment's status is by now.
        """
        if len({event.experiment_id for event in new_events}) > 1:
            raise ValueError("an append is for one experiment")
        if not new_events:
            return []
        call = AppendCall(tuple(new_events), epoch, is_answered)
        with tracing.span("append", events=len(new_events)):
            outcome = await self._group.submit(call, len(new_events))
            while isinstance(outcome, ArchiveNeeded):
                call = call._replace(looked_up=await self._looked_up(call, outcome.up_to))
                outcome = await self._group.submit(call, len(new_events))
            return outcome

    async def _looked_up(self, call: AppendCall, up_to: int) -> LookedUp:
        """The archived rounds that a call repeats or refers to."""
        experiment_id = call.experiment_id
        keys = {each.event_key for each in call.events if each.kind in ROUNDS}
        requests = {each.request_id for each in call.events if each.request_id is not None}
        decisions = await self._archive.decisions(keys, experiment_id)
        rewards = await self._archive.pairs(experiment_id, decisions.values())
        repeated = await self._archive.requests(experiment_id, sorted(requests))
        return LookedUp(up_to, (*(each.event for each in decisions.values()), *rewards, *repeated))

    def can_append_later(self, event_count: int) -> bool:
        """Whether so many events may be answered first: the database takes them, within the bound."""
        return self._group.can_submit_later(event_count)

    def append_later(
        self, new_events: Sequence[NewEvent], on_lost: Callable[[ServiceError], None]
    ) -> None:
        """Write the decisions of one experiment, whose callers do not wait for it.

        That is done within milliseconds, or as soon as the database can be written again. A crash of
        the process before that loses them; `on_lost` is called with what else does.
        """
        call = AppendCall(tuple(new_events), is_answered=True, looked_up=JUST_MADE)
        self._group.submit_later(call, len(new_events), on_lost)

    async def _write(self, calls: Sequence[AppendCall]) -> list[Outcome]:
        outcomes = await write(self._database, calls)
        if have_written(outcomes):
            self._database.note_write()
        return outcomes

    async def check_archived(self, experiment_id: str, up_to: int) -> None:
        """Raise `DamagedArchive` if archived events up to this offset cannot be read."""
        await self._archive.check(experiment_id, up_to)

    async def read(
        self, experiment_id: str, after: int, limit: int, up_to: int | None = None
    ) -> list[StoredEvent]:
        """At most `limit` events with `after` < offset ≤ `up_to`, in order.

        A reward brings its decision, with the context; sets of contexts come without them. Raises
        `DamagedArchive` if archived events cannot be read.
        """
        # There are no gaps, so the page's end is known. Without it a planner that knows no statistics
        # may sort all of the log that follows to find its beginning.
        end = after + limit if up_to is None else min(after + limit, up_to)
        query = (
            sa.select(*page_columns())
            .where(events.c.experiment_id == experiment_id, events.c.event_offset > after)
            .where(events.c.event_offset <= end)
            .order_by(events.c.event_offset)
        )
        page = await fetch_events(self._database, query, PAGE_TIMEOUT_SECONDS)
        found = {event.offset: event for event in page}
        archived: Sequence[Archived] = ()
        if len(found) < end - after:
            archived = await self._archive.between(experiment_id, after, end)
            found = {each.event.offset: each.event for each in archived} | found
        if found and len(found) != max(found) - after:
            raise DamagedArchive("Archived events are missing.")
        whole = [found[offset] for offset in sorted(found)]
        return await self._with_decisions(experiment_id, whole, archived)

    async def _with_decisions(
        self, experiment_id: str, page: Sequence[StoredEvent], archived: Iterable[Archived]
    ) -> list[StoredEvent]:
        """The events, each reward with its decision; the archived ones know where theirs is."""
        decisions = {event.event_key: event for event in page if event.kind is DECISION}
        rewards = [each for each in archived if each.event.kind is REWARD]
        apart = [each for each in rewards if each.event.event_key not in decisions]
        pairs = await self._archive.pairs(experiment_id, apart)
        decisions |= {event.event_key: event for event in pairs}
        missing = {event.event_key for event in page if event.kind is REWARD} - decisions.keys()
        # A second look-up by key, not a join, for which the planner may scan the whole table.
        found = await fetch_by_keys(
            self._database,
            DECISION,
            sorted(missing),
            with_context=True,
            timeout_seconds=PAGE_TIMEOUT_SECONDS,
        )
        decisions |= {event.event_key: event for event in found}
        late = await self._archive.decisions(missing - decisions.keys(), experiment_id)
        decisions |= {key: each.event for key, each in late.items()}
        return [
            replace(event, decision=decisions[event.event_key]) if event.kind is REWARD else event
            for event in page
        ]

    async def events_at(self, experiment_id: str, offsets: Iterable[int]) -> dict[int, StoredEvent]:
        """The events at these offsets, with their contexts; offsets beyond the log are left out."""
        found: dict[int, StoredEvent] = {}
        wanted = sorted(set(offsets))
        query = sa.select(*page_columns()).where(events.c.experiment_id == experiment_id)
        for some in chunks(wanted, CONTEXTS_A_QUERY):
            asked = one_of(self._database.dialect, query, events.c.event_offset, some)
            page = await fetch_events(self._database, asked, PAGE_TIMEOUT_SECONDS)
            found |= {event.offset: event for event in page}
        archived = await self._archive.at(experiment_id, [n for n in wanted if n not in found])
        return found | {offset: each.event for offset, each in archived.items()}

    async def contexts_part(self, experiment_id: str, request_id: str, number: int) -> StoredEvent:
        """A part of a set of contexts, with them."""
        key = part_key(experiment_id, request_id, number)
        (part,) = await fetch_by_keys(
            self._database,
            EventKind.CONTEXTS,
            [key],
            with_context=True,
            timeout_seconds=PAGE_TIMEOUT_SECONDS,
        )
        return part

    async def find(self, kind: EventKind, key: str) -> StoredEvent | None:
        """The event of a kind that is never archived, without its contexts."""
        found = await fetch_by_keys(self._database, kind, [key])
        return found[0] if found else None

    async def has_history(self, experiment_id: str) -> bool:
        """Whether past rounds were imported."""
        query = (
            sa.select(events.c.event_offset)
            .where(events.c.experiment_id == experiment_id, LIFECYCLE)
            .where(events.c.kind == EventKind.HISTORY.value)
            .limit(1)
        )
        return await self._database.scalar(query) is not None

    async def last_offset(self, experiment_id: str) -> int:
        """The offset of the newest event, 0 before the first."""
        query = sa.select(experiments.c.head_offset).where(
            experiments.c.experiment_id == experiment_id
        )
        head = await self._database.scalar(query)
        if head is None:
            raise UnknownExperiment
        return int(head)

    async def find_decisions(self, decision_ids: Iterable[str]) -> dict[str, StoredEvent]:
        """The decisions that have these ids, without their contexts."""
        wanted = list(decision_ids)
        stored = await self._stored_decisions(wanted)
        found = {each.event_key: each for each in stored}
        archived = await self._archive.decisions([key for key in wanted if key not in found])
        return found | {key: replace(each.event, context=None) for key, each in archived.items()}

    async def find_rewards(
        self, experiment_id: str, decision_ids: Iterable[str]
    ) -> dict[str, StoredEvent]:
        """The rewards of these decisions of an experiment, by the decision's id."""
        keys = list(decision_ids)
        found = await fetch_by_keys(
            self._database, REWARD, keys, timeout_seconds=PAGE_TIMEOUT_SECONDS
        )
        rewards = {reward.event_key: reward for reward in found}
        missing = [key for key in keys if key not in rewards]
        decided = await self._archive.decisions(missing, experiment_id)
        archived = await self._archive.pairs(experiment_id, decided.values())
        return rewards | {reward.event_key: reward for reward in archived}

    async def _stored_decisions(self, decision_ids: Sequence[str]) -> list[StoredEvent]:
        if self._database.dialect == "sqlite":
            find = partial(sqlite.events_of_keys, DECISION, decision_ids)
            return await self._database.read_in_thread(find)
        return await fetch_by_keys(self._database, DECISION, decision_ids)

    async def find_decision(self, decision_id: str) -> StoredEvent | None:
        """The decision that has this id, without its context."""
        return (await self.find_decisions([decision_id])).get(decision_id)


async def write(database: Database, calls: Sequence[AppendCall]) -> list[Outcome]:
    """For each call what the log holds now, or why it was refused.

    All calls are written in one transaction, each call all or nothing. The experiments' rows are
    locked first, in the order of their ids, and stay locked until the commit. So offsets are
    consecutive and become visible in order, and what is known about earlier events holds until
    the new ones are written.
    """
    if database.dialect == "sqlite":
        outcomes = await database.write_in_thread(partial(sqlite.append, calls))
    else:
        append = partial(postgres.append, calls, database.options)
        outcomes = await database.write_by_driver(append)
    reach(Failpoint.AFTER_COMMIT)
    return outcomes
