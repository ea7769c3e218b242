"""The log on SQLite: appended to in one transaction, in a thread and past SQLAlchemy."""

import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from service.ops.failpoints import Failpoint, reach
from service.records import EventKind, StoredEvent
from service.storage.events.append_inputs import (
    Lookups,
    archived_lookups,
    locked,
    lookups,
)
from service.storage.events.append_plan import (
    AppendCall,
    AppendPlan,
    LockedExperiment,
    Outcome,
    RequestKey,
)
from service.storage.events.rows import (
    COLUMNS,
    MAX_KEYS,
    chunks,
    event_values,
    in_log_order,
    stored_event,
)
from service.storage.tables import SQLITE_NOW, moment_from_sqlite, padded

_FOUND = ", ".join("NULL" if name == "context" else name for name in COLUMNS)
LOCK = f"""
SELECT experiment_id, phase, status, head_offset, epoch, archived_offset, {SQLITE_NOW}
FROM experiments
WHERE experiment_id IN ({{}}) ORDER BY experiment_id
"""  # noqa: S608
BY_KEYS = f"SELECT {_FOUND} FROM events WHERE kind = ? AND event_key IN ({{}})"  # noqa: S608
BY_REQUESTS = f"SELECT {_FOUND} FROM events WHERE experiment_id = ? AND request_id IN ({{}})"  # noqa: S608
ARCHIVED_REQUESTS = """
SELECT request_key FROM archived_requests WHERE experiment_key = ? AND request_key IN ({})
"""
INSERT = f"""
INSERT INTO events ({", ".join(COLUMNS)}) VALUES ({", ".join("?" * len(COLUMNS))})
"""  # noqa: S608
MOVE = "UPDATE experiments SET head_offset = ?, phase = ? WHERE experiment_id = ?"


def append(calls: Sequence[AppendCall], connection: sqlite3.Connection) -> list[Outcome]:
    """For each call what the log holds now, or why it was refused."""
    wanted = lookups(calls)
    # The transaction has SQLite's one write lock.
    rows = _found(connection, LOCK, (), wanted.experiment_ids)
    experiments, now = locked((*row[:-1], moment_from_sqlite(row[-1])) for row in rows)
    stored, archived = _related(connection, wanted), _archived(connection, wanted, experiments)
    plan = AppendPlan(experiments, stored, now, archived)
    outcomes = plan.outcomes(calls)
    if plan.new_events:
        reach(Failpoint.BEFORE_INSERT)
        connection.executemany(INSERT, map(_row, plan.new_events))
        connection.executemany(MOVE, map(_head, plan.changed.values()))
        reach(Failpoint.BEFORE_COMMIT)
    return outcomes


def _related(connection: sqlite3.Connection, wanted: Lookups) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    for kind, keys in wanted.keys.items():
        found += events_of_keys(kind, keys, connection)
    for experiment_id, request_ids in wanted.requests.items():
        rows = _found(connection, BY_REQUESTS, (experiment_id,), request_ids)
        found += in_log_order([_stored(row) for row in rows])
    return found


def _archived(
    connection: sqlite3.Connection, wanted: Lookups, experiments: Sequence[LockedExperiment]
) -> set[RequestKey]:
    """The named requests that may be archived."""
    found: set[RequestKey] = set()
    for experiment_key, requests in archived_lookups(wanted, experiments):
        rows = _found(connection, ARCHIVED_REQUESTS, (experiment_key,), list(requests))
        found |= {requests[row[0]] for row in rows}
    return found


def events_of_keys(
    kind: EventKind, keys: Sequence[str], connection: sqlite3.Connection
) -> list[StoredEvent]:
    """The events of a kind that have one of these keys, without their contexts."""
    return [_stored(row) for row in _found(connection, BY_KEYS, (kind.value,), keys)]


def _found(
    connection: sqlite3.Connection, query: str, first: tuple[Any, ...], values: Sequence[Any]
) -> Iterator[Sequence[Any]]:
    """The rows of a query whose last condition is a list of values."""
    for some in chunks(values, MAX_KEYS):
        listed = padded(some)
        marks = ", ".join("?" * len(listed))
        yield from connection.execute(query.format(marks), (*first, *listed))


def _stored(row: Sequence[Any]) -> StoredEvent:
    return stored_event((*row[:-1], moment_from_sqlite(row[-1])))


def _row(event: StoredEvent) -> tuple[Any, ...]:
    return (*event_values(event)[:-1], moment_to_sqlite(event.created_at))


def _head(experiment: LockedExperiment) -> tuple[int, str, str]:
    return experiment.head_offset, experiment.phase.value, experiment.experiment_id


@lru_cache(maxsize=16)  # the events of a batch have one moment
def moment_to_sqlite(moment: datetime) -> str:
    """As `UtcDateTime` keeps it in SQLite."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"
