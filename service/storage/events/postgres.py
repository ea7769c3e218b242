"""The log on Postgres, on its own driver: new decisions are one statement, all other appends one transaction.

SQLAlchemy lends the connection and is passed by: it costs several times what the statements do.
"""

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from service.ops.failpoints import Failpoint, reach
from service.records import Appended, EventKind, NewEvent, Status, StoredEvent
from service.storage.database import DatabaseOptions
from service.storage.drivers.postgres import set_limits
from service.storage.events.append_inputs import Lookups, archived_lookups, locked, lookups
from service.storage.events.append_plan import (
    AppendCall,
    AppendPlan,
    LockedExperiment,
    Outcome,
    RequestKey,
    numbered,
)
from service.storage.events.rows import (
    COLUMNS,
    event_values,
    in_log_order,
    stored_event,
)

MAX_BYTES = 1 << 20  # of the events of one statement, which is in memory as a whole, here and there

# The types of arrays of columns that are not text.
TYPES = {
    "event_offset": "bigint",
    "payload": "bytea",
    "context": "bytea",
    "reward": "double precision",
    "policy_version": "bigint",
    "created_at": "timestamptz",
}

# While a log is short, reading all of it is cheaper than any index. Postgres keeps such a plan for a
# statement that it has seen some times, and the log grows by thousands before it thinks again.
# Appends come again and again and have one good plan: that one may be kept.
BEGIN = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = auto"
LOCK = """
SELECT experiment_id, phase, status, head_offset, epoch, archived_offset, clock_timestamp()
FROM experiments
WHERE experiment_id = ANY($1::text[]) ORDER BY experiment_id FOR UPDATE
"""
_FOUND = ", ".join("NULL" if name == "context" else name for name in COLUMNS)
# One search for each thing asked for, as in `search` and for the same reason.
BY_KEYS = f"""
SELECT found.* FROM unnest($2::text[]) AS asked(event_key)
CROSS JOIN LATERAL (
    SELECT {_FOUND} FROM events WHERE kind = $1 AND event_key = asked.event_key OFFSET 0
) AS found
"""  # noqa: S608
BY_REQUESTS = f"""
SELECT found.* FROM unnest($2::text[]) AS asked(request_id)
CROSS JOIN LATERAL (
    SELECT {_FOUND} FROM events
    WHERE experiment_id = $1 AND request_id = asked.request_id OFFSET 0
) AS found
"""  # noqa: S608
ARCHIVED_REQUESTS = """
SELECT found.request_key FROM unnest($2::bigint[]) AS asked(request_key)
CROSS JOIN LATERAL (
    SELECT request_key FROM archived_requests
    WHERE experiment_key = $1 AND request_key = asked.request_key OFFSET 0
) AS found
"""


def _arrays(names: Sequence[str], first: int) -> str:
    """Parameters for the arrays of these columns."""
    numbered_names = enumerate(names, first)
    return ", ".join(f"${number}::{TYPES.get(name, 'text')}[]" for number, name in numbered_names)


INSERT = f"""
WITH moved AS (
    UPDATE experiments SET head_offset = changed.head, phase = changed.phase
    FROM unnest($1::text[], $2::bigint[], $3::text[]) AS changed(id, head, phase)
    WHERE experiment_id = changed.id
)
INSERT INTO events ({", ".join(COLUMNS)}) SELECT * FROM unnest({_arrays(COLUMNS, 4)})
"""  # noqa: S608
# What differs from one new decision to the next; the statement itself gives them offset and time.
_OWN = (
    *("event_key", "payload", "context", "request_id", "request_hash"),
    *("domain", "arm", "policy_version"),
)
_OWN_NAMES = ", ".join(_OWN)
# The statement is a transaction of its own. It locks the experiments in one order, as LOCK does, and moves
# their last offsets only if all of them take decisions. The log cannot hold ids that were just made, so
# nothing is looked up.
INSERT_NEW = f"""
WITH locked AS MATERIALIZED (
    SELECT experiment_id FROM experiments
    WHERE experiment_id = ANY($1::text[]) AND status = '{Status.ACTIVE}'
    ORDER BY experiment_id FOR UPDATE
), moved AS (
    UPDATE experiments SET head_offset = head_offset + wanted.size
    FROM unnest($1::text[], $2::bigint[]) AS wanted(id, size)
    WHERE experiment_id = wanted.id AND (SELECT count(*) FROM locked) = cardinality($1)
    RETURNING experiment_id, head_offset - wanted.size AS head, clock_timestamp() AS moment
), written AS (
    INSERT INTO events (experiment_id, event_offset, kind, created_at, {_OWN_NAMES})
    SELECT experiment_id, moved.head + new.number, '{EventKind.DECISION}', moved.moment, {_OWN_NAMES}
    FROM moved JOIN unnest($3::text[], $4::bigint[], {_arrays(_OWN, 5)})
        AS new(id, number, {_OWN_NAMES}) ON new.id = experiment_id
)
SELECT experiment_id, head, moment FROM moved
"""  # noqa: S608


async def append(
    calls: Sequence[AppendCall], options: DatabaseOptions, driver: asyncpg.Connection
) -> list[Outcome]:
    """For each call what the log holds now, or why it was refused.

    The unique constraints are for what locks of experiments cannot see: a key in two of them at once.
    """
    outcomes = await _append_new(calls, driver) if fit_one_statement(calls) else None
    return await _append_planned(calls, options, driver) if outcomes is None else outcomes


def fit_one_statement(calls: Sequence[AppendCall]) -> bool:
    """Whether the calls bring new decisions, nothing else, and not too much."""
    return (
        all(call.epoch is None and call.has_new_decisions for call in calls)
        and sum(_size(event) for call in calls for event in call.events) <= MAX_BYTES
    )


async def _append_new(
    calls: Sequence[AppendCall], driver: asyncpg.Connection
) -> list[Outcome] | None:
    """What each call is answered; None, and nothing written, if an experiment takes no decisions."""
    reach(Failpoint.BEFORE_INSERT)
    sizes: Counter[str] = Counter()
    events: list[NewEvent] = []
    numbers: list[int] = []  # of the events, each in its experiment
    for event in (event for call in calls for event in call.events):
        sizes[event.experiment_id] += 1
        events.append(event)
        numbers.append(sizes[event.experiment_id])
    names = ("experiment_id", *_OWN)
    ids, *columns = ([getattr(event, name) for event in events] for name in names)
    rows = await driver.fetch(INSERT_NEW, list(sizes), list(sizes.values()), ids, numbers, *columns)
    if not rows:
        return None
    moved = {experiment_id: (head, moment) for experiment_id, head, moment in rows}
    appended: list[Appended] = []
    for event, number in zip(events, numbers, strict=True):
        head, moment = moved[event.experiment_id]
        appended.append(Appended(numbered(event, head + number, moment), created=True))
    answers = iter(appended)
    return [[next(answers) for _ in call.events] for call in calls]


async def _append_planned(
    calls: Sequence[AppendCall], options: DatabaseOptions, driver: asyncpg.Connection
) -> list[Outcome]:
    """Lock the experiments, look up what the calls may repeat, and write by the plan's rules."""
    wanted = lookups(calls)
    async with transaction(driver, options):
        experiments, now = locked(await driver.fetch(LOCK, wanted.experiment_ids))
        stored = await _related(driver, wanted)
        archived = await _archived(driver, wanted, experiments)
        plan = AppendPlan(experiments, stored, now, archived)
        outcomes = plan.outcomes(calls)
        if plan.new_events:
            reach(Failpoint.BEFORE_INSERT)
            await _insert(driver, plan)
            reach(Failpoint.BEFORE_COMMIT)
    return outcomes


@asynccontextmanager
async def transaction(driver: asyncpg.Connection, options: DatabaseOptions) -> AsyncIterator[None]:
    """A transaction that ends with the block; a connection under which it fails is not used again."""
    await driver.execute(f"{BEGIN}; {set_limits(options)}")
    yield
    await driver.execute("COMMIT")


async def _related(driver: asyncpg.Connection, wanted: Lookups) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    for kind, keys in wanted.keys.items():
        found += map(stored_event, await driver.fetch(BY_KEYS, kind.value, keys))
    for experiment_id, request_ids in wanted.requests.items():
        rows = await driver.fetch(BY_REQUESTS, experiment_id, request_ids)
        found += in_log_order([stored_event(row) for row in rows])
    return found


async def _archived(
    driver: asyncpg.Connection, wanted: Lookups, experiments: Sequence[LockedExperiment]
) -> set[RequestKey]:
    """The named requests that may be archived."""
    found: set[RequestKey] = set()
    for experiment_key, requests in archived_lookups(wanted, experiments):
        rows = await driver.fetch(ARCHIVED_REQUESTS, experiment_key, list(requests))
        found |= {requests[row[0]] for row in rows}
    return found


async def _insert(driver: asyncpg.Connection, plan: AppendPlan) -> None:
    """Write the events, and how far their experiments' logs now reach."""
    changed = plan.changed.values()
    heads = (
        [each.experiment_id for each in changed],
        [each.head_offset for each in changed],
        [each.phase.value for each in changed],
    )
    for part in _parts(plan.new_events):
        rows = map(event_values, part)
        await driver.execute(INSERT, *heads, *zip(*rows, strict=True))
        heads = ([], [], [])


def _parts(events: Sequence[StoredEvent]) -> Iterator[list[StoredEvent]]:
    """The events in runs of bounded size, each at least one event."""
    part: list[StoredEvent] = []
    left = MAX_BYTES
    for event in events:
        left -= _size(event)
        if part and left < 0:
            yield part
            part, left = [], MAX_BYTES - _size(event)
        part.append(event)
    yield part


def _size(event: NewEvent | StoredEvent) -> int:
    return len(event.payload) + len(event.context or b"")
