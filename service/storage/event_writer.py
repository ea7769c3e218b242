"""The one transaction that appends to the log."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.errors import ServiceError
from service.failpoints import Failpoint, reach
from service.records import Appended, EventKind, Phase, Status, StoredEvent, utc_now
from service.storage.append_plan import AppendCall, AppendPlan, LockedExperiment
from service.storage.database import Database
from service.storage.event_rows import (
    MAX_KEYS,
    chunks,
    event_columns,
    event_row,
    fetch_by_keys,
    fetch_events,
)
from service.storage.tables import DatabaseNow, events, experiments, padded

Outcome = list[Appended] | ServiceError


class EventWriter:
    """Writes the calls of a batch in one transaction, each call all or nothing.

    The experiments' rows are locked first, in the order of their ids, and stay locked until the
    commit. So offsets are consecutive and become visible in order, and what is known about
    earlier events holds until the new ones are written. The unique constraints are there only
    for what a lock of one experiment cannot see: the same key in two experiments at once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, calls: Sequence[AppendCall]) -> list[Outcome]:
        """For each call what the log holds now, or why it was refused."""
        outcomes = await self._database.write(lambda connection: _write(connection, calls))
        reach(Failpoint.AFTER_COMMIT)
        return outcomes


async def _write(connection: AsyncConnection, calls: Sequence[AppendCall]) -> list[Outcome]:
    locked, now = await _lock(connection, {call.experiment_id for call in calls})
    stored = await _related_events(connection, calls)
    plan = AppendPlan(locked, stored, now)
    outcomes = [_outcome(plan, call) for call in calls]
    if plan.new_events:
        reach(Failpoint.BEFORE_INSERT)
        await connection.execute(sa.insert(events), [event_row(each) for each in plan.new_events])
        await _move_heads(connection, plan.changed.values())
        reach(Failpoint.BEFORE_COMMIT)
    return outcomes


def _outcome(plan: AppendPlan, call: AppendCall) -> Outcome:
    try:
        return plan.add(call)
    except ServiceError as refusal:
        return refusal


async def _lock(
    connection: AsyncConnection, experiment_ids: set[str]
) -> tuple[list[LockedExperiment], datetime]:
    query = (
        sa.select(
            experiments.c.experiment_id,
            experiments.c.phase,
            experiments.c.status,
            experiments.c.head_offset,
            experiments.c.epoch,
            DatabaseNow(),
        )
        .where(experiments.c.experiment_id.in_(padded(sorted(experiment_ids))))
        .order_by(experiments.c.experiment_id)
        .with_for_update()
    )
    rows = (await connection.execute(query)).all()
    locked = [
        LockedExperiment(experiment_id, Phase(phase), Status(status), head, epoch)
        for experiment_id, phase, status, head, epoch, _ in rows
    ]
    return locked, max((row[-1] for row in rows), default=utc_now())


async def _related_events(
    connection: AsyncConnection, calls: Sequence[AppendCall]
) -> list[StoredEvent]:
    keys: defaultdict[EventKind, set[str]] = defaultdict(set)
    requests: defaultdict[str, set[str]] = defaultdict(set)
    for event in (event for call in calls for event in call.events):
        keys[event.kind].add(event.event_key)
        if event.kind is EventKind.REWARD:
            keys[EventKind.DECISION].add(event.event_key)
        if event.request_id is not None:
            requests[event.experiment_id].add(event.request_id)
    found: list[StoredEvent] = []
    for kind, some in keys.items():
        found += await fetch_by_keys(connection, kind, sorted(some), with_context=False)
    for experiment_id, request_ids in requests.items():
        found += await fetch_by_requests(connection, experiment_id, request_ids)
    return found


async def fetch_by_requests(
    connection: AsyncConnection, experiment_id: str, request_ids: Iterable[str]
) -> list[StoredEvent]:
    """The events of these requests, in log order, without their contexts."""
    query = (
        sa.select(*event_columns(with_context=False))
        .where(events.c.experiment_id == experiment_id)
        .order_by(events.c.event_offset)
    )
    found: list[StoredEvent] = []
    for some in chunks(sorted(request_ids), MAX_KEYS):
        found += await fetch_events(connection, query.where(events.c.request_id.in_(padded(some))))
    return found


async def _move_heads(connection: AsyncConnection, changed: Iterable[LockedExperiment]) -> None:
    statement = (
        sa.update(experiments)
        .where(experiments.c.experiment_id == sa.bindparam("id"))
        .values(head_offset=sa.bindparam("head"), phase=sa.bindparam("new_phase"))
    )
    rows = [
        {"id": each.experiment_id, "head": each.head_offset, "new_phase": each.phase.value}
        for each in changed
    ]
    await connection.execute(statement, rows)
