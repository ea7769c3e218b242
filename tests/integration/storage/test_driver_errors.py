"""The drivers' errors as service errors."""

import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from service.errors import InvalidRequest, StorageUnavailable
from service.storage.drivers.driver_errors import DRIVER_ERRORS, is_transient, translate


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


def failed(statement: str, parameters: tuple[object, ...] = ()) -> sqlite3.Error:
    """What SQLite's driver raises for a statement, after a table with one row was made."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        connection.execute("INSERT INTO numbers VALUES (1)")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1000)
        with pytest.raises(sqlite3.Error) as caught:
            connection.execute(statement, parameters)
    return caught.value


def test_sqlite_without_a_table_is_unavailable():
    error = failed("SELECT 1 FROM gone")
    assert isinstance(error, DRIVER_ERRORS)
    assert isinstance(translate(error), StorageUnavailable)
    assert not is_transient(error)


def test_sqlite_refuses_what_is_too_large():
    error = failed("INSERT INTO numbers VALUES (?)", (b"x" * 2000,))
    assert isinstance(error, DRIVER_ERRORS)
    assert isinstance(translate(error), InvalidRequest)


def test_a_conflict_on_sqlite_is_tried_again(tmp_path: Path):
    assert is_transient(failed("INSERT INTO numbers VALUES (1)"))
    path = tmp_path / "locked.db"
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(path, timeout=0)) as other:
        one.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError) as caught:
            other.execute("BEGIN IMMEDIATE")
    assert is_transient(caught.value)
    assert isinstance(translate(caught.value), StorageUnavailable)
