"""What requests wait for from the log, on either database."""

from collections.abc import Sequence
from typing import Protocol

from service.records import StoredEvent
from service.storage.database import Database
from service.storage.events.append_plan import AppendCall, Outcome
from service.storage.events.postgres import PostgresEvents
from service.storage.events.sqlite import SqliteEvents


class EventBackend(Protocol):
    """Appends to the log and finds decisions, by statements made for one kind of database."""

    async def write(self, calls: Sequence[AppendCall]) -> list[Outcome]:
        """For each call what the log holds now, or why it was refused.

        All calls are written in one transaction, each call all or nothing. The experiments' rows are
        locked first, in the order of their ids, and stay locked until the commit. So offsets are
        consecutive and become visible in order, and what is known about earlier events holds until
        the new ones are written.
        """
        ...

    async def find_decisions(self, decision_ids: Sequence[str]) -> list[StoredEvent]:
        """The decisions that have these ids, without their contexts."""
        ...


def event_backend(database: Database) -> EventBackend:
    """The one for this database."""
    return SqliteEvents(database) if database.dialect == "sqlite" else PostgresEvents(database)
