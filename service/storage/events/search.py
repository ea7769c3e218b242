"""Searches for many events at once, each through a whole index, whatever the planner knows."""

from collections.abc import Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from service.storage.tables import padded

Value = TypeVar("Value", bound=str | int)
Query = sa.Select[*tuple[Any, ...]]


def one_of(
    dialect: str,
    query: Query,
    column: sa.Column[Value],
    values: Sequence[Value],
) -> Query:
    """The query for the rows whose column has one of these values, of which none comes twice.

    `query` names the other columns of the index in its conditions. On Postgres each value is
    searched for by itself, kept apart by OFFSET: over an IN list the planner, while it knows no
    statistics, uses the first column of an index alone, and reads all of the log for each list.
    """
    if dialect != "postgresql":
        return query.where(column.in_(padded(values)))
    array = sa.literal(list(dict.fromkeys(values)), ARRAY(column.type))
    asked = sa.func.unnest(array).table_valued("value", name="asked").render_derived()
    found = query.where(column == asked.c.value).offset(sa.literal_column("0")).lateral("found")
    return sa.select(*found.c).select_from(asked.join(found, sa.true()))
