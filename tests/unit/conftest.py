"""Unit tests open no database: one that tries fails."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest

_is_refused = False


def _refuse_databases(event: str, _: tuple[Any, ...]) -> None:
    if _is_refused and event == "sqlite3.connect":
        raise AssertionError("a unit test opens a database")


sys.addaudithook(_refuse_databases)


@pytest.fixture(autouse=True)
def _no_database() -> Iterator[None]:
    global _is_refused
    _is_refused = True
    yield
    _is_refused = False
