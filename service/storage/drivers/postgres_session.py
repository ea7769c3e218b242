"""The transaction that appends, on Postgres's own driver: four or five round trips, whatever the batch.

SQLAlchemy lends the connection and is passed by: it costs several times what the statements do.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection

from service.records import Domain, EventKind, StoredEvent
from service.storage.drivers.kept_driver import lent_driver
from service.storage.events.append_inputs import Locked, locked
from service.storage.events.append_plan import LockedExperiment
from service.storage.events.copied_rows import copied_rows
from service.storage.events.rows import event_values, in_log_order

# The columns in the order of `StoredEvent`'s fields, with the types of their arrays.
COLUMNS = {
    "experiment_id": "text",
    "event_offset": "bigint",
    "kind": "text",
    "event_key": "text",
    "payload": "bytea",
    "context": "bytea",
    "request_id": "text",
    "request_hash": "text",
    "domain": "text",
    "arm": "text",
    "reward": "double precision",
    "policy_version": "bigint",
    "created_at": "timestamptz",
}

# While a log is short, reading all of it is cheaper than any index. Postgres keeps such a plan for a
# statement that it has seen some times, and the log grows by thousands before it thinks again.
# Appends come again and again and have one good plan: that one may be kept.
BEGIN = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL plan_cache_mode = auto"
LOCK = """
SELECT experiment_id, phase, status, head_offset, epoch, clock_timestamp() FROM experiments
WHERE experiment_id = ANY($1::text[]) ORDER BY experiment_id FOR UPDATE
"""
FOUND = ", ".join("NULL" if name == "context" else name for name in COLUMNS)
# One search for each thing asked for, as in `event_search` and for the same reason.
BY_KEYS = f"""
SELECT found.* FROM unnest($2::text[]) AS asked(event_key)
CROSS JOIN LATERAL (
    SELECT {FOUND} FROM events WHERE kind = $1 AND event_key = asked.event_key OFFSET 0
) AS found
"""  # noqa: S608
BY_REQUESTS = f"""
SELECT found.* FROM unnest($2::text[]) AS asked(request_id)
CROSS JOIN LATERAL (
    SELECT {FOUND} FROM events
    WHERE experiment_id = $1 AND request_id = asked.request_id OFFSET 0
) AS found
"""  # noqa: S608
COPIED = 32  # events from which on a COPY is cheaper than arrays, which are checked item by item
ARRAYS = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(COLUMNS.values(), 4))
MOVE = """
UPDATE experiments SET head_offset = moved.head, phase = moved.phase
FROM unnest($1::text[], $2::bigint[], $3::text[]) AS moved(id, head, phase)
WHERE experiment_id = moved.id
"""
INSERT = f"""
WITH head AS ({MOVE})
INSERT INTO events ({", ".join(COLUMNS)}) SELECT * FROM unnest({ARRAYS})
"""  # noqa: S608


class PostgresSession:
    """An open transaction of asyncpg."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def begun(cls, lent: AsyncConnection) -> AsyncIterator["PostgresSession"]:
        """A transaction that ends with the block."""
        async with bare(lent) as driver:
            await driver.execute(BEGIN)
            yield cls(driver)
            await driver.execute("COMMIT")

    async def lock(self, experiment_ids: Sequence[str]) -> Locked:
        """Lock these experiments, in their order."""
        return locked(await self._connection.fetch(LOCK, experiment_ids))

    async def by_keys(self, kind: EventKind, keys: Sequence[str]) -> list[StoredEvent]:
        """The events of a kind that have one of these keys, without their contexts."""
        rows = await self._connection.fetch(BY_KEYS, kind.value, keys)
        return [_stored(row) for row in rows]

    async def by_requests(
        self, experiment_id: str, request_ids: Sequence[str]
    ) -> list[StoredEvent]:
        """The events of these requests, in log order, without their contexts."""
        rows = await self._connection.fetch(BY_REQUESTS, experiment_id, request_ids)
        return in_log_order([_stored(row) for row in rows])

    async def insert(
        self,
        new_events: Sequence[StoredEvent],
        changed: Iterable[LockedExperiment],
        on_sent: Callable[[], None],
    ) -> None:
        """Write events, and how far their experiments' logs now reach.

        `on_sent` is called when Postgres has many of them and works on them.
        """
        moved = [(each.experiment_id, each.head_offset, each.phase.value) for each in changed]
        heads = tuple(zip(*moved, strict=True))
        if len(new_events) < COPIED:
            rows = map(event_values, new_events)
            await self._connection.execute(INSERT, *heads, *zip(*rows, strict=True))
            return
        await self._connection.copy_to_table(
            "events", source=copied_rows(new_events, on_sent), columns=COLUMNS, format="binary"
        )
        await self._connection.execute(MOVE, *heads)


@asynccontextmanager
async def bare(lent: AsyncConnection) -> AsyncIterator[asyncpg.Connection]:
    """The driver's own connection, in no transaction; one that is in doubt is not used again."""
    borrowed = await lent_driver(lent)
    try:
        yield borrowed.driver
    except BaseException:
        await borrowed.discard()
        raise


def _stored(row: asyncpg.Record) -> StoredEvent:
    values = dict(zip(COLUMNS, row, strict=True))
    values["offset"] = values.pop("event_offset")
    values["kind"] = EventKind(values["kind"])
    values["domain"] = None if values["domain"] is None else Domain(values["domain"])
    return StoredEvent(**values)
