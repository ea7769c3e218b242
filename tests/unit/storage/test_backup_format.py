"""The file of a backup: what a reader refuses though every byte of it could be unpacked."""

import gzip
import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from service.storage.backup.format import (
    FORMAT,
    FORMAT_VERSION,
    BackupError,
    BackupWriter,
    Contents,
    Header,
    verified,
)


def written(path: Path) -> Contents:
    header = Header(FORMAT, FORMAT_VERSION, "0004", "today", {"arms": ["name", "number"]})
    with gzip.open(path, "wb") as file:
        writer = BackupWriter(file, header)
        writer.add("arms", [("low", 1), ("mid", 2)])
        writer.add("arms", [("high", 3)])
        return writer.end()


def test_what_was_written_is_read(tmp_path: Path):
    contents = written(tmp_path / "backup.gz")
    assert contents.rows == {"arms": 3}
    assert verified(tmp_path / "backup.gz") == contents


def other_end(lines: list[bytes]) -> list[bytes]:
    """The last line with the hash of something else."""
    place = lines[-1].index(b'"sha256":"') + len(b'"sha256":"')
    return [*lines[:-1], lines[-1][:place] + 64 * b"0" + lines[-1][place + 64 :]]


def with_fewer_rows_than_none(lines: list[bytes]) -> list[bytes]:
    """A part that takes a row back, as a reader might count it: all hashes are right."""
    digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest().encode()
    part = b'{"table":"arms","rows":-1,"sha256":"%b"}\n' % digest
    whole = hashlib.sha256(b"".join([*lines[:-1], part])).hexdigest().encode()
    return [*lines[:-1], part, b'{"end":{"arms":2},"sha256":"%b"}\n' % whole]


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "data after the end": lambda lines: [*lines, b"more\n"],
    "not complete": other_end,
    "a part of arms has changed": lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]],
    "truncated": lambda lines: lines[:-1],
    "unknown table": lambda lines: [lines[0], lines[1].replace(b"arms", b"legs"), *lines[2:]],
    "a line has an unexpected format": lambda lines: [lines[0], b"[]\n", *lines[1:]],
    "a line has an unexpected": with_fewer_rows_than_none,
    "not a backup of format": lambda lines: [lines[0].replace(b"daband", b"other"), *lines[1:]],
}


@pytest.mark.parametrize(("payload", "change"), CHANGES.items(), ids=CHANGES)
def test_a_file_that_was_changed_is_refused(
    tmp_path: Path, payload: str, change: Callable[[list[bytes]], list[bytes]]
):
    path = tmp_path / "backup.gz"
    written(path)
    lines = gzip.decompress(path.read_bytes()).splitlines(keepends=True)
    path.write_bytes(gzip.compress(b"".join(change(lines))))
    with pytest.raises(BackupError, match=payload):
        verified(path)
