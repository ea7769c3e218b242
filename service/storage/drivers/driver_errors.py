"""Translates the drivers' exceptions, which never leave storage."""

import sqlite3

import asyncpg
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, TimeoutError as NoConnectionFree

from service.errors import InvalidRequest, ServiceError, StorageUnavailable

SERIALIZATION_FAILURE, DEADLOCK = "40001", "40P01"
READ_ONLY = "25006"  # of a server that replays another one's log
DATA_EXCEPTION_CLASS = "22"
# Wrong credentials and missing rights.
FINAL_CLASSES = ("28", "42")
# Of a server and its sessions: their messages quote no statement and no value.
TELLING_CLASSES = ("08", "28", "3D", "53", "57")

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


def is_transient(error: BaseException | None) -> bool:
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


def is_final(error: BaseException | None) -> bool:
    """Whether waiting does not cure the error: credentials, rights, a file that is no database."""
    if getattr(_driver_error(error), "sqlite_errorcode", None) is not None:
        return not is_transient(error)
    return sqlstate(error).startswith(FINAL_CLASSES)


def reason(error: BaseException | None) -> str:
    """The error in words that quote no statement; None is a timeout."""
    if error is None or isinstance(error, TimeoutError):
        return "it does not answer in time"
    found = _driver_error(error)
    is_telling = isinstance(found, OSError | sqlite3.Error)
    if is_telling or sqlstate(error).startswith(TELLING_CLASSES):
        return str(getattr(found, "__cause__", None) or found)
    return type(error).__name__


def sqlstate(error: BaseException | None) -> str:
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


def _driver_error(error: BaseException | None) -> BaseException | None:
    """The driver's own exception, which SQLAlchemy may wrap."""
    return error.orig if isinstance(error, DBAPIError) else error
