"""Files that appear whole or not at all."""

import os
from pathlib import Path

import pytest

from service.ops.durable_files import durable_file


def test_a_file_has_its_name_once_its_content_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, flushed = tmp_path / "rounds", list[tuple[int, bool]]()
    monkeypatch.setattr(
        os, "fsync", lambda number: flushed.append((os.fstat(number).st_ino, path.exists()))
    )
    with durable_file(path) as partial:
        partial.write_bytes(b"all of it")
        assert not path.exists()
    assert path.read_bytes() == b"all of it"
    assert flushed == [(path.stat().st_ino, False), (tmp_path.stat().st_ino, True)]
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_fails_halfway_leaves_what_was_there(tmp_path: Path):
    path = tmp_path / "rounds"
    path.write_bytes(b"before")

    def fail() -> None:
        with durable_file(path) as partial:
            partial.write_bytes(b"half")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]
