"""Log files by name: which format, gzip or not."""

import gzip
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import IO, cast

from service.formats import dsjson, jsonl, open_bandit, parquet
from service.formats.records import LogFormatError, LoggedDecision, LogHeader, LogReader

FORMATS: dict[str, ModuleType] = {
    "jsonl": jsonl,
    "parquet": parquet,
    "dsjson": dsjson,
    "csv": open_bandit,
}


@contextmanager
def reading(path: Path, name: str | None = None, skip_bad: bool = False) -> Iterator[LogReader]:
    """A log file, open; its format is the one named, or that of the file's name."""
    module = FORMATS[name or format_of(path)]
    with _opened(path, "rb") as file:
        yield module.read(file, skip_bad)


def write_log(
    path: Path, header: LogHeader, decisions: Iterable[LoggedDecision], name: str | None = None
) -> int:
    """Write a log file; the number of its decisions."""
    module = FORMATS[name or format_of(path)]
    with _opened(path, "wb") as file:
        count: int = module.write(file, header, decisions)
    return count


def format_of(path: Path) -> str:
    """The format that a file's name tells."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise LogFormatError(f"{path.name}: the name ends in none of {', '.join(FORMATS)}")
    return suffix


def _opened(path: Path, mode: str) -> IO[bytes]:
    if path.suffix == ".gz":
        # A fixed time stamp: equal logs are equal files.
        return cast("IO[bytes]", gzip.GzipFile(path, mode, mtime=0))
    return cast("IO[bytes]", path.open(mode))
