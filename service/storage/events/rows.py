"""Rows of the events table to records and back."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from service.records import Domain, EventKind, StoredEvent
from service.storage.database import Database
from service.storage.events.search import Query, one_of
from service.storage.tables import events

# The columns in the order of `StoredEvent`'s fields.
COLUMNS = (
    *("experiment_id", "event_offset", "kind", "event_key", "payload", "context", "request_id"),
    *("request_hash", "domain", "arm", "reward", "policy_version", "created_at"),
)
MAX_KEYS = 1024  # of one search; SQLite takes some 32,000 parameters

Item = TypeVar("Item")

# Look-ups: a log is read by the million, and calling an enumeration costs several times as much.
_KINDS = {kind.value: kind for kind in EventKind}
_DOMAINS: dict[str | None, Domain | None] = {None: None} | {each.value: each for each in Domain}

# Sets of contexts are larger still: they are read part by part, never by the page.
_DECIDED_CONTEXT = sa.case(
    (events.c.kind == EventKind.CONTEXTS.value, sa.null()), else_=events.c.context
).label("context")


def page_columns() -> list[sa.ColumnElement[Any]]:
    """The columns with the contexts of decisions alone."""
    columns = event_columns(with_context=True)
    return [_DECIDED_CONTEXT if each is events.c.context else each for each in columns]


def event_columns(*, with_context: bool) -> list[sa.ColumnElement[Any]]:
    """`COLUMNS` of the table; contexts are large."""
    context = events.c.context if with_context else sa.null().label("context")
    return [context if name == "context" else events.c[name] for name in COLUMNS]


async def fetch_events(
    database: Database, query: Query, timeout_seconds: float | None = None
) -> list[StoredEvent]:
    """The events that a query over `event_columns` finds."""
    return [stored_event(row) for row in await database.rows(query, timeout_seconds)]


async def fetch_by_keys(
    database: Database,
    kind: EventKind,
    keys: Iterable[str],
    *,
    with_context: bool = False,
    timeout_seconds: float | None = None,
) -> list[StoredEvent]:
    """The events of a kind that have one of these keys."""
    query = sa.select(*event_columns(with_context=with_context)).where(events.c.kind == kind.value)
    found: list[StoredEvent] = []
    for some in chunks(list(keys), MAX_KEYS):
        asked = one_of(database.dialect, query, events.c.event_key, some)
        found += await fetch_events(database, asked, timeout_seconds)
    return found


def in_log_order(found: list[StoredEvent]) -> list[StoredEvent]:
    """Sorted here: asked to sort, SQLite would go through the whole log in order instead."""
    return sorted(found, key=lambda event: event.offset)


def event_values(event: StoredEvent) -> tuple[Any, ...]:
    """What an event's row holds, in the order of `COLUMNS`."""
    return (
        event.experiment_id,
        event.offset,
        event.kind.value,
        event.event_key,
        event.payload,
        event.context,
        event.request_id,
        event.request_hash,
        None if event.domain is None else event.domain.value,
        event.arm,
        event.reward,
        event.policy_version,
        event.created_at,
    )


def chunks(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The items in runs of at most `size`."""
    return (items[start : start + size] for start in range(0, len(items), size))


def stored_event(row: Sequence[Any]) -> StoredEvent:
    """The event of a row of `event_columns`."""
    (
        experiment_id,
        offset,
        kind,
        key,
        payload,
        context,
        request_id,
        request_hash,
        domain,
        arm,
        reward,
        policy_version,
        created_at,
    ) = row
    return StoredEvent(
        experiment_id,
        offset,
        _KINDS[kind],
        key,
        payload,
        context,
        request_id,
        request_hash,
        _DOMAINS[domain],
        arm,
        reward,
        policy_version,
        created_at,
    )
