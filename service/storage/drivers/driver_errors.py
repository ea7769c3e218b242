"""Translation of the drivers' exceptions: nothing above storage sees one."""

import sqlite3

import asyncpg
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, TimeoutError as NoConnectionFree

from service.errors import InvalidRequest, ServiceError, StorageUnavailable

SERIALIZATION_FAILURE, DEADLOCK = "40001", "40P01"
DATA_EXCEPTION_CLASS = "22"

# What appends may raise, which SQLAlchemy does not see: the database refuses, its driver is used
# wrongly or its connection is closed, or the server was killed under the connection.
ASYNCPG_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
DRIVER_ERRORS = (
    DBAPIError,
    *ASYNCPG_ERRORS,
    sqlite3.Error,
    NoConnectionFree,
    OSError,  # refused and reset connections, and timeouts
    UnicodeError,  # what drivers cannot encode: lone surrogates,
    OverflowError,  # and integers over 64 bits
)
BROKEN_CONSTRAINTS = (
    IntegrityError,
    asyncpg.IntegrityConstraintViolationError,
    sqlite3.IntegrityError,
)


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction, run again at once, may well succeed.

    A broken unique constraint is among them: another writer was faster, and the second run
    finds its row and answers by the rules.
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
    """The problem that the caller is told; values that cannot be stored are the caller's fault."""
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
    """The driver's own exception, of which SQLAlchemy makes one of its own."""
    return error.orig if isinstance(error, DBAPIError) else error
