"""Translation of the drivers' exceptions: nothing above storage sees one."""

import asyncpg
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from service.errors import InvalidRequest, ServiceError, StorageUnavailable

SERIALIZATION_FAILURE, DEADLOCK = "40001", "40P01"
DATA_EXCEPTION_CLASS = "22"
SQLITE_BUSY, SQLITE_LOCKED = 5, 6

# What the appending transaction may raise, which SQLAlchemy does not see: Postgres refuses, asyncpg
# is used wrongly or its connection is closed, or the server was killed under the connection.
ASYNCPG_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
DRIVER_ERRORS = (
    DBAPIError,
    *ASYNCPG_ERRORS,
    NoConnectionFree,
    OSError,  # refused and reset connections, and timeouts
    UnicodeError,  # what drivers cannot encode: lone surrogates,
    OverflowError,  # and integers over 64 bits
)


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction, run again at once, may well succeed.

    A broken unique constraint is among them: another writer was faster, and the second run
    finds its row and answers by the rules.
    """
    if isinstance(error, IntegrityError | asyncpg.IntegrityConstraintViolationError):
        return True
    if isinstance(error, asyncpg.PostgresError):
        return error.sqlstate in (SERIALIZATION_FAILURE, DEADLOCK)
    if not isinstance(error, DBAPIError):
        return False
    sqlite_code = getattr(error.orig, "sqlite_errorcode", None)
    if sqlite_code is not None:
        # Extended codes keep the primary one in the low byte.
        return sqlite_code & 0xFF in (SQLITE_BUSY, SQLITE_LOCKED)
    return sqlstate(error) in (SERIALIZATION_FAILURE, DEADLOCK)


def sqlstate(error: DBAPIError) -> str:
    """Postgres's code of the error, or an empty string."""
    return str(getattr(error.orig, "sqlstate", None) or "")


def translate(error: BaseException) -> ServiceError:
    """The problem that the caller is told; values that cannot be stored are the caller's fault."""
    return InvalidRequest("A value cannot be stored.") if _is_data(error) else StorageUnavailable()


def _is_data(error: BaseException) -> bool:
    if isinstance(error, DBAPIError):
        return (
            isinstance(error, DataError)
            or sqlstate(error).startswith(DATA_EXCEPTION_CLASS)
            # The Postgres driver reports what it cannot encode as an interface error, whose
            # cause is a ValueError.
            or isinstance(getattr(error.orig, "__cause__", None), ValueError)
        )
    if isinstance(error, ASYNCPG_ERRORS):
        code = str(getattr(error, "sqlstate", None) or "")
        return code.startswith(DATA_EXCEPTION_CLASS) or isinstance(error, ValueError)
    return isinstance(error, UnicodeError | OverflowError)
