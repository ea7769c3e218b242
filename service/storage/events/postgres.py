"""The log on Postgres: new decisions are one statement, all other appends one transaction."""

from collections.abc import Sequence
from functools import partial

import asyncpg
from sqlalchemy.ext.asyncio import AsyncConnection

from service.ops.failpoints import Failpoint, reach
from service.records import Appended, EventKind, StoredEvent, utc_now
from service.storage.database import Database
from service.storage.drivers.postgres_session import PostgresSession
from service.storage.events.append_inputs import Lookups, lookups
from service.storage.events.append_plan import AppendCall, AppendPlan, Outcome, tell_sent
from service.storage.events.new_decisions import append_new_decisions, fit_one_statement
from service.storage.events.rows import fetch_by_keys


class PostgresEvents:
    """Appends through asyncpg.

    The unique constraints are for what locks of experiments cannot see: a key in two of them at once.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, calls: Sequence[AppendCall]) -> list[Outcome]:
        """For each call what the log holds now, or why it was refused."""
        outcomes: Sequence[Outcome] | None = None
        if fit_one_statement(calls):
            outcomes = await self._database.write_by_driver(partial(_append_new, calls))
        if outcomes is None:
            outcomes = await self._database.write(partial(_append, calls))
        reach(Failpoint.AFTER_COMMIT)
        return list(outcomes)

    async def find_decisions(self, decision_ids: Sequence[str]) -> list[StoredEvent]:
        """The decisions that have these ids, without their contexts."""
        return await self._database.read(
            lambda connection: fetch_by_keys(
                connection, EventKind.DECISION, decision_ids, with_context=False
            )
        )


async def _append_new(
    calls: Sequence[AppendCall], driver: asyncpg.Connection
) -> list[list[Appended]] | None:
    reach(Failpoint.BEFORE_INSERT)
    return await append_new_decisions(driver, calls)


async def _append(calls: Sequence[AppendCall], connection: AsyncConnection) -> list[Outcome]:
    wanted = lookups(calls)
    async with PostgresSession.begun(connection) as session:
        experiments, now = await session.lock(wanted.experiment_ids)
        plan = AppendPlan(experiments, await _related(session, wanted), now or utc_now())
        outcomes = plan.outcomes(calls)
        if plan.new_events:
            reach(Failpoint.BEFORE_INSERT)
            changed = plan.changed.values()
            await session.insert(plan.new_events, changed, partial(tell_sent, calls))
            reach(Failpoint.BEFORE_COMMIT)
    return outcomes


async def _related(session: PostgresSession, wanted: Lookups) -> list[StoredEvent]:
    found: list[StoredEvent] = []
    for kind, keys in wanted.keys.items():
        found += await session.by_keys(kind, keys)
    for experiment_id, request_ids in wanted.requests.items():
        found += await session.by_requests(experiment_id, request_ids)
    return found
