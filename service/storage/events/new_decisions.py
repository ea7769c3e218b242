"""Decisions under ids that were made for them a moment ago, appended by one statement of Postgres.

Nothing in the log can be like them, so there is nothing to look up and nothing to decide: the statement
locks the experiment's row by moving its head, and is a transaction by itself. One round trip instead of
four or five is what most selects wait for.
"""

import asyncio
from collections.abc import Sequence

import asyncpg

from service.records import Appended, EventKind, Status
from service.storage.drivers.postgres_session import COLUMNS
from service.storage.events.append_plan import AppendCall, numbered, tell_sent

MAX_BYTES = 1 << 20  # a statement is in memory as a whole, here and there; a COPY goes in parts
# What differs from row to row. The driver looks at each item of an array to find out whether it is one
# itself, which is most of what a row costs: what is text is sent as one text for all rows.
_BYTES = ("payload", "context")
_TEXTS = ("event_key", "request_id", "request_hash", "domain", "arm", "policy_version")
_BETWEEN, _NOTHING = "\x1f", "\x1e"  # no id that is made here has them; an arm's name may
_NAMES = ", ".join((*_BYTES, *_TEXTS))
_ARRAYS = ", ".join(
    (
        *(f"${number}::bytea[]" for number, _ in enumerate(_BYTES, 3)),
        *(
            f"string_to_array(${number}, '{_BETWEEN}', '{_NOTHING}')::{COLUMNS[name]}[]"
            for number, name in enumerate(_TEXTS, 3 + len(_BYTES))
        ),
    )
)
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
    """Whether the calls are for one experiment, and bring nothing but such decisions and not too much."""
    experiment_id = calls[0].experiment_id
    return (
        all(
            call.experiment_id == experiment_id and call.epoch is None and call.has_new_decisions
            for call in calls
        )
        and sum(call.size_bytes for call in calls) <= MAX_BYTES
    )


async def append_new_decisions(
    connection: asyncpg.Connection, calls: Sequence[AppendCall]
) -> list[list[Appended]] | None:
    """What each call that wants it is answered, once durable.

    None, and nothing written, if the experiment takes no decisions, or an arm's name cannot be sent so.
    """
    events = [event for call in calls for event in call.events]
    texts = [_joined([getattr(event, name) for event in events]) for name in _TEXTS]
    if None in texts:
        return None
    columns = ([getattr(event, name) for event in events] for name in _BYTES)
    # In the next turn of the event loop it is on its way; on a new connection, its statement is.
    asyncio.get_running_loop().call_soon(tell_sent, calls)
    row = await connection.fetchrow(APPEND, calls[0].experiment_id, len(events), *columns, *texts)
    if row is None:
        return None
    head, moment = row
    answers: list[list[Appended]] = []
    for call in calls:
        asked = call.events if call.wants_stored else ()
        answers.append(
            [
                Appended(numbered(event, offset, moment), created=True)
                for offset, event in enumerate(asked, head + 1)
            ]
        )
        head += len(call.events)
    return answers


def _joined(values: Sequence[str | int | None]) -> str | None:
    """The values as one text; none where it would be read otherwise, as no text is: for no values."""
    text = _BETWEEN.join([_NOTHING if each is None else str(each) for each in values])
    marks = (text.count(_BETWEEN), text.count(_NOTHING))
    return text if text and marks == (len(values) - 1, values.count(None)) else None
