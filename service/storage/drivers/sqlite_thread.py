"""A thread that owns one connection to SQLite and runs one transaction at a time."""

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")


class SqliteThread:
    """Runs work in transactions of the blocking sqlite3 driver.

    `begin` is the statement that begins a transaction. The connection is opened when it is first needed,
    and again after a failed rollback. An executor would take twice as long to pass work to the thread.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], begin: str) -> None:
        self._connect = connect
        self._begin = begin
        self._connection: sqlite3.Connection | None = None  # used only by the thread
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: Thread | None = None

    def transact(
        self, work: Callable[[sqlite3.Connection], T], on_end: Callable[[], None] = lambda: None
    ) -> asyncio.Future[T]:
        """The result of `work` after its transaction is durable.

        A transaction cannot be interrupted: `on_end` is called when it ends, even if the caller is gone.
        """
        return self._submit(lambda: self._transaction(work), on_end)

    async def close(self) -> None:
        """Close the connection after the running transaction, and end the thread."""
        if self._thread is None:
            return
        closed = self._submit(self._disconnect, lambda: None)
        self._jobs.put(None)
        self._thread = None
        await closed

    def _submit(self, work: Callable[[], T], on_end: Callable[[], None]) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()

        def end(set_outcome: Callable[[Any], None], outcome: object) -> None:
            on_end()
            if not answer.done():
                set_outcome(outcome)

        def run() -> None:
            set_outcome: Callable[[Any], None]
            outcome: object
            try:
                set_outcome, outcome = answer.set_result, work()
            except Exception as error:  # noqa: BLE001 - raised for the caller
                set_outcome, outcome = answer.set_exception, error
            with suppress(RuntimeError):  # the event loop may be closed already
                loop.call_soon_threadsafe(end, set_outcome, outcome)

        if self._thread is None:
            # A daemon: a hanging disk must not prevent the process from ending.
            self._thread = Thread(target=self._run, name="sqlite", daemon=True)
            self._thread.start()
        self._jobs.put(run)
        return answer

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection = self._connection or self._connect()
        try:
            connection.execute(self._begin)
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            self._roll_back(connection)
            raise
        return result

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        try:
            connection.rollback()  # does nothing if SQLite has already rolled back
        except sqlite3.Error:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
