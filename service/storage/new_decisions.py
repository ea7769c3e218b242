"""Decisions under ids that were made for them a moment ago, appended by one statement of Postgres.

Nothing in the log can be like them, so there is nothing to look up and nothing to decide: the statement
locks the experiment's row by moving its head, and is a transaction by itself. One round trip instead of
four or five is what most selects wait for.
"""

from collections.abc import Sequence
from typing import Any

import asyncpg

from service.records import Appended, EventKind, Status
from service.storage.append_plan import AppendCall, numbered
from service.storage.postgres_session import COLUMNS

MAX_BYTES = 1 << 20  # a statement is in memory as a whole, here and there; a COPY goes in parts
# What differs from row to row.
_VARYING = (
    *("event_key", "payload", "context", "request_id", "request_hash"),
    *("domain", "arm", "policy_version"),
)
_NAMES = ", ".join(_VARYING)
_ARRAYS = ", ".join(f"${number}::{COLUMNS[name]}[]" for number, name in enumerate(_VARYING, 3))
APPEND = f"""
WITH moved AS (
    UPDATE experiments SET head_offset = head_offset + $2
    WHERE experiment_id = $1 AND status = '{Status.ACTIVE}'
    RETURNING head_offset - $2 AS head, clock_timestamp() AS moment
), written AS (
    INSERT INTO events (experiment_id, event_offset, kind, created_at, {_NAMES})
    SELECT $1, moved.head + new.number, '{EventKind.DECISION}', moved.moment, {_NAMES}
    FROM moved, unnest({_ARRAYS}) WITH ORDINALITY AS new({_NAMES}, number)
)
SELECT head, moment FROM moved
"""  # noqa: S608


def fit_one_statement(calls: Sequence[AppendCall]) -> bool:
    """Whether the calls are for one experiment, and bring nothing but such decisions and not too much.

    Who wants to be told when the database has them is told in the middle of a COPY.
    """
    experiment_id = calls[0].experiment_id
    return (
        all(
            call.experiment_id == experiment_id
            and call.epoch is None
            and call.on_sent is None
            and call.has_new_decisions
            for call in calls
        )
        and sum(call.size_bytes for call in calls) <= MAX_BYTES
    )


async def append_new_decisions(
    connection: asyncpg.Connection, calls: Sequence[AppendCall]
) -> list[list[Appended]] | None:
    """What each call that is awaited is answered, once durable.

    None, and nothing written, if the experiment takes no decisions.
    """
    events = [event for call in calls for event in call.events]
    columns: list[list[Any]] = [[getattr(event, name) for event in events] for name in _VARYING]
    row = await connection.fetchrow(APPEND, calls[0].experiment_id, len(events), *columns)
    if row is None:
        return None
    head, moment = row
    answers: list[list[Appended]] = []
    for call in calls:
        asked = call.events if call.is_awaited else ()
        answers.append(
            [
                Appended(numbered(event, offset, moment), created=True)
                for offset, event in enumerate(asked, head + 1)
            ]
        )
        head += len(call.events)
    return answers
