"""The one transaction that appends to the log."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import ServiceError
from service.failpoints import Failpoint, reach
from service.records import Appended, EventKind, StoredEvent, utc_now
from service.storage.append_plan import AppendCall, AppendPlan, tell_sent
from service.storage.append_session import AppendSession, SqlSession
from service.storage.database import Database
from service.storage.new_decisions import append_new_decisions, fit_one_statement
from service.storage.postgres_session import PostgresSession

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
        outcomes: Sequence[Outcome] | None = None
        if not self._is_sqlite and fit_one_statement(calls):
            outcomes = await self._database.write_by_driver(partial(_append_new, calls))
        if outcomes is None:
            outcomes = await self._database.write(partial(self._append, calls))
        reach(Failpoint.AFTER_COMMIT)
        return list(outcomes)

    async def _append(
        self, calls: Sequence[AppendCall], connection: AsyncConnection
    ) -> list[Outcome]:
        async with self._begun(connection) as session:
            return await _write(session, calls)


async def _append_new(
    calls: Sequence[AppendCall], driver: asyncpg.Connection
) -> list[list[Appended]] | None:
    reach(Failpoint.BEFORE_INSERT)
    return await append_new_decisions(driver, calls)


async def _write(session: AppendSession, calls: Sequence[AppendCall]) -> list[Outcome]:
    locked, now = await session.lock(sorted({call.experiment_id for call in calls}))
    stored = await _related_events(session, calls)
    plan = AppendPlan(locked, stored, now or utc_now())
    outcomes = [_outcome(plan, call) for call in calls]
    if plan.new_events:
        reach(Failpoint.BEFORE_INSERT)
        await session.insert(plan.new_events, plan.changed.values(), partial(tell_sent, calls))
        reach(Failpoint.BEFORE_COMMIT)
    return outcomes


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
