"""Translates the drivers' exceptions, which never leave storage."""

import sqlite3

import asyncpg
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, TimeoutError as NoConnectionFree

from service.errors import InvalidRequest, ServiceError, StorageUnavailable

SERIALIZATION_FAILURE, DEADLOCK = "40001", "40P01"
READ_ONLY = "25006"  # of a server that replays another one's log
DATA_EXCEPTION_CLASS = "22"

# Errors of appends, which bypass SQLAlchemy: refusals, closed connections, and a killed server.
ASYNCPG_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
DRIVER_ERRORS = (
    DBAPIError,
    *ASYNCPG_ERRORS,
    sqlite3.Error,
    NoConnectionFree,
    OSError,  # refused and reset connections, and timeouts
    UnicodeError,  # lone surrogates
    OverflowError,  # integers over 64 bits
)
BROKEN_CONSTRAINTS = (
    IntegrityError,
    asyncpg.IntegrityConstraintViolationError,
    sqlite3.IntegrityError,
)


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction may succeed if it is retried at once.

    A violated unique constraint is transient: another writer was faster, and the retry finds its row.
    """
    if isinstance(error, BROKEN_CONSTRAINTS):
        return True
    sqlite_code = getattr(_driver_error(error), "sqlite_errorcode", None)
    if sqlite_code is not None:
        # Extended codes keep the primary one in the low byte.
        return sqlite_code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return sqlstate(error) in (SERIALIZATION_FAILURE, DEADLOCK)


def sqlstate(error: BaseException) -> str:
    """Postgres's code of the error, or an empty string."""
    return str(getattr(_driver_error(error), "sqlstate", None) or "")


def translate(error: BaseException) -> ServiceError:
    """The service error for the caller; values that cannot be stored are an invalid request."""
    return InvalidRequest("A value cannot be stored.") if _is_data(error) else StorageUnavailable()


def _is_data(error: BaseException) -> bool:
    if isinstance(error, DBAPIError) and isinstance(
        getattr(error.orig, "__cause__", None), ValueError
    ):
        return True  # SQLAlchemy reports what asyncpg cannot encode as an interface error
    return isinstance(
        error, DataError | sqlite3.DataError | ValueError | OverflowError
    ) or sqlstate(error).startswith(DATA_EXCEPTION_CLASS)


def _driver_error(error: BaseException) -> BaseException | None:
    """The driver's own exception, which SQLAlchemy may wrap."""
    return error.orig if isinstance(error, DBAPIError) else error
