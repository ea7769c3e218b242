"""The one transaction that appends to the log."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import ServiceError
from service.failpoints import Failpoint, reach
from service.records import Appended, EventKind, StoredEvent, utc_now
from service.storage.append_plan import AppendCall, AppendPlan
from service.storage.append_session import AppendSession, SqlSession
from service.storage.database import Database
from service.storage.new_decisions import append_new_decisions, fit_one_statement
from service.storage.postgres_session import PostgresSession, bare

Outcome = list[Appended] | ServiceError
Begun = Callable[[AsyncConnection], AbstractAsyncContextManager[AppendSession]]


class EventWriter:
    """Writes the calls of a batch in one transaction, each call all or nothing.

    The experiments' rows are locked first, in the order of their ids, and stay locked until the
    commit. So offsets are consecutive and become visible in order, and what is known about
    earlier events holds until the new ones are written. The unique constraints are there only
    for what a lock of one experiment cannot see: the same key in two experiments at once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_sqlite = database.dialect == "sqlite"
        self._begun: Begun = SqlSession.begun if self._is_sqlite else PostgresSession.begun

    async def write(self, calls: Sequence[AppendCall]) -> list[Outcome]:
        """For each call what the log holds now, or why it was refused."""
        has_one_statement = not self._is_sqlite and fit_one_statement(calls)

        async def work(connection: AsyncConnection) -> list[Outcome]:
            if has_one_statement and (written := await _append_new(connection, calls)) is not None:
                return written
            async with self._begun(connection) as session:
                return await _write(session, calls)

        outcomes = await self._database.write(work)
        reach(Failpoint.AFTER_COMMIT)
        return outcomes


async def _append_new(
    connection: AsyncConnection, calls: Sequence[AppendCall]
) -> list[Outcome] | None:
    reach(Failpoint.BEFORE_INSERT)
    async with bare(connection) as driver:
        written = await append_new_decisions(driver, calls)
    return None if written is None else [*written]


async def _write(session: AppendSession, calls: Sequence[AppendCall]) -> list[Outcome]:
    locked, now = await session.lock(sorted({call.experiment_id for call in calls}))
    stored = await _related_events(session, calls)
    plan = AppendPlan(locked, stored, now or utc_now())
    outcomes = [_outcome(plan, call) for call in calls]
    if plan.new_events:
        reach(Failpoint.BEFORE_INSERT)
        await session.insert(plan.new_events, plan.changed.values(), partial(_tell, calls))
        reach(Failpoint.BEFORE_COMMIT)
    return outcomes


def _tell(calls: Sequence[AppendCall]) -> None:
    for call in calls:
        if call.on_sent is not None:
            call.on_sent()


def _outcome(plan: AppendPlan, call: AppendCall) -> Outcome:
    try:
        return plan.add(call)
    except ServiceError as refusal:
        return refusal


async def _related_events(session: AppendSession, calls: Sequence[AppendCall]) -> list[StoredEvent]:
    """What the calls may repeat or refer to; an id that was made a moment ago is in no log."""
    keys: defaultdict[EventKind, set[str]] = defaultdict(set)
    requests: defaultdict[str, set[str]] = defaultdict(set)
    known = [call for call in calls if not call.has_new_decisions]
    for event in (event for call in known for event in call.events):
        if not event.has_new_key:
            keys[event.kind].add(event.event_key)
        if event.kind is EventKind.REWARD:
            keys[EventKind.DECISION].add(event.event_key)
        if event.request_id is not None and not event.has_new_request:
            requests[event.experiment_id].add(event.request_id)
    found: list[StoredEvent] = []
    for kind, some in keys.items():
        found += await session.by_keys(kind, sorted(some))
    for experiment_id, request_ids in requests.items():
        found += await session.by_requests(experiment_id, sorted(request_ids))
    return found
