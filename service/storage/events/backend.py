"""What requests wait for from the log, by statements made for one kind of database."""

from collections.abc import Sequence
from functools import partial

from service.ops.failpoints import Failpoint, reach
from service.records import EventKind, StoredEvent
from service.storage.database import Database
from service.storage.events import postgres, sqlite
from service.storage.events.append_plan import AppendCall, Outcome
from service.storage.events.rows import fetch_by_keys


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


async def find_decisions(database: Database, decision_ids: Sequence[str]) -> list[StoredEvent]:
    """The decisions that have these ids, without their contexts."""
    if database.dialect == "sqlite":
        find = partial(sqlite.events_of_keys, EventKind.DECISION, decision_ids)
        return await database.read_in_thread(find)
    return await fetch_by_keys(database, EventKind.DECISION, decision_ids)
