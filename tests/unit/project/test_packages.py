"""Packages that the tests install where that is allowed."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, repeat
from pathlib import Path
from threading import Barrier, BrokenBarrierError

import pytest

from tests.support.processes.packages import found_or_installed
from tests.support.waiting import PATIENCE_SECONDS


def test_a_program_that_several_processes_miss_at_once_is_installed_once(tmp_path: Path) -> None:
    binary, installed = tmp_path / "bin", list[str]()
    together, second = Barrier(4), Barrier(2)

    def find() -> Path | None:
        return binary if binary.exists() else None

    def missed_by_all() -> Path | None:
        found = find()
        together.wait(PATIENCE_SECONDS)
        return found

    def install(package: str) -> None:
        installed.append(package)
        with suppress(BrokenBarrierError):
            second.wait(0.2)  # another installation would meet this one here
        binary.touch()

    def look(_: int) -> Path:
        looks = chain([missed_by_all], repeat(find))
        return found_or_installed(lambda: next(looks)(), "redis-server", install, tmp_path / "lock")

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(look, range(4))) == [binary] * 4
    assert installed == ["redis-server"]


def test_a_program_that_cannot_be_installed_is_named(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="these tests need redis-server"):
        found_or_installed(lambda: None, "redis-server", lambda package: None, tmp_path / "lock")
