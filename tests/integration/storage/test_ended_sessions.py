"""Ended sessions: found by every process, and forgotten once they have expired."""

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from service.storage.database import Database
from service.storage.keys import EndedSessions
from service.storage.tables import ended_sessions

LATER, EARLIER = (datetime.now(UTC) + timedelta(hours=hours) for hours in (8, -1))


async def test_a_session_is_ended_once_and_for_all(database: Database):
    ended = EndedSessions(database)
    assert not await ended.has("a")
    await ended.add("a", LATER)
    await ended.add("a", LATER)
    assert [await EndedSessions(database).has(each) for each in "ab"] == [True, False]


async def test_expired_sessions_are_forgotten_at_the_next_logout(database: Database):
    ended = EndedSessions(database)
    await ended.add("old", EARLIER)
    await ended.add("new", LATER)
    found = await database.read(
        lambda connection: connection.scalars(sa.select(ended_sessions.c.sha256))
    )
    assert list(found) == ["new"]
