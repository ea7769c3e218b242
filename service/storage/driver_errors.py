"""Translation of the drivers' exceptions: nothing above storage sees one."""

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from service.errors import InvalidRequest, ServiceError, StorageUnavailable

SERIALIZATION_FAILURE, DEADLOCK = "40001", "40P01"
DATA_EXCEPTION_CLASS = "22"
SQLITE_BUSY, SQLITE_LOCKED = 5, 6

# OSError covers refused and reset connections, and timeouts. The last two are what drivers
# raise for what they cannot encode: lone surrogates, integers over 64 bits.
DRIVER_ERRORS = (DBAPIError, NoConnectionFree, OSError, UnicodeError, OverflowError)


def is_transient(error: BaseException) -> bool:
    """Whether the same transaction, run again at once, may well succeed.

    A broken unique constraint is among them: another writer was faster, and the second run
    finds its row and answers by the rules.
    """
    if isinstance(error, IntegrityError):
        return True
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
    return isinstance(error, UnicodeError | OverflowError)
