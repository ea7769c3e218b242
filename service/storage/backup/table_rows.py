"""Reads and writes all rows of all tables, for backup and restore."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.storage.tables import metadata, snapshot_keys

Values = tuple[Any, ...]

PAGE_BYTES = 1 << 20  # approximate size of a page
MOST_ROWS = 1024
FIRST_ROWS = 16


class StoredTable:
    """One table, read and written in the order of its primary key."""

    def __init__(self, table: sa.Table) -> None:
        self._table = table
        self._keys = list(table.primary_key.columns)
        self._key_places = [list(table.columns).index(key) for key in self._keys]

    @property
    def name(self) -> str:
        return str(self._table.name)

    @property
    def columns(self) -> dict[str, Any]:
        """The Python type of each column, by name and in order."""
        return {str(column.name): _type_of(column) for column in self._table.columns}

    async def pages(self, connection: AsyncConnection) -> AsyncIterator[list[Values]]:
        """All rows, in pages of bounded size."""
        query = sa.select(self._table).order_by(*self._keys)
        page, limit = await self._page(connection, query.limit(FIRST_ROWS)), FIRST_ROWS
        while page:
            yield page
            if len(page) < limit:
                return
            last = [
                sa.literal(page[-1][place], key.type)
                for place, key in zip(self._key_places, self._keys, strict=True)
            ]
            limit = _rows_a_page(page)
            later = query.where(sa.tuple_(*self._keys) > sa.tuple_(*last))
            page = await self._page(connection, later.limit(limit))

    async def insert(self, connection: AsyncConnection, rows: Sequence[Values]) -> None:
        """Write rows of all columns."""
        names = list(self.columns)
        values = [dict(zip(names, row, strict=True)) for row in rows]
        await connection.execute(sa.insert(self._table), values)

    async def is_empty(self, connection: AsyncConnection) -> bool:
        """Whether there is no row."""
        return not await connection.scalar(sa.select(sa.exists(sa.select(self._table))))

    async def _page(self, connection: AsyncConnection, query: sa.Select[Any]) -> list[Values]:
        return [tuple(row) for row in await connection.execute(query)]


def stored_tables(of: sa.MetaData = metadata) -> list[StoredTable]:
    """Every table of the schema but that of the key; referenced tables come first.

    Each database has a key of its own: who reads a backup cannot sign, and nothing else needs the old one.
    """
    return [StoredTable(table) for table in of.sorted_tables if table.name != snapshot_keys.name]


def _type_of(column: sa.Column[Any]) -> Any:
    stored = column.type
    # Our own column types take the Python type of the type they decorate.
    impl = stored.impl_instance if isinstance(stored, sa.types.TypeDecorator) else stored
    kind = impl.python_type
    return kind | None if column.nullable else kind


def _rows_a_page(page: Sequence[Values]) -> int:
    sizes = sum(len(value) for row in page for value in row if isinstance(value, bytes | str))
    return max(1, min(MOST_ROWS, PAGE_BYTES * len(page) // max(1, sizes)))
