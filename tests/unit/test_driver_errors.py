"""What the drivers raise, as problems of ours."""

import asyncpg
import pytest

from service.errors import InvalidRequest, StorageUnavailable
from service.storage.driver_errors import DRIVER_ERRORS, is_transient, translate


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.ConnectionDoesNotExistError("gone"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InternalClientError("cannot switch to state 12"),
        asyncpg.AdminShutdownError("terminating connection"),
        ConnectionResetError(),
    ],
)
def test_a_lost_connection_makes_storage_unavailable(error: Exception):
    assert isinstance(error, DRIVER_ERRORS)
    assert isinstance(translate(error), StorageUnavailable)
    assert not is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.DataError("22 and more"),
        asyncpg.CharacterNotInRepertoireError("a NUL"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
        OverflowError(),
    ],
)
def test_a_value_that_cannot_be_stored_is_the_callers_fault(error: Exception):
    assert isinstance(error, DRIVER_ERRORS)
    assert isinstance(translate(error), InvalidRequest)


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.UniqueViolationError("another writer was faster"),
        asyncpg.DeadlockDetectedError("deadlock"),
        asyncpg.SerializationError("conflict"),
    ],
)
def test_a_conflict_is_tried_again(error: Exception):
    assert isinstance(error, DRIVER_ERRORS)
    assert is_transient(error)
