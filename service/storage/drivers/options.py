"""Limits on the use of a database."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """Limits on every use of the database.

    `timeout_seconds` covers one whole operation: waiting for a connection, connecting, the transaction and
    its retries. Postgres ends a session that is idle inside a transaction, for example of a stopped
    process, so that it cannot keep a lock.

    `archive_place` is the folder or URL where the archived parts of logs are.

    With `is_patient` the time starts when a connection is free. That is for trainers: hundreds of
    experiments may need one at once, and no request waits for them.
    """

    pool_size: int = 8
    timeout_seconds: float = 1.0
    lock_timeout_seconds: float = 0.8
    idle_transaction_timeout_seconds: float = 5.0
    is_patient: bool = False
    archive_place: str | None = None


def milliseconds(seconds: float) -> str:
    """The time as SQLite and Postgres take it."""
    return str(max(1, round(seconds * 1000)))
