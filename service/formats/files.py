"""Log files: their format by name, with or without gzip."""

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
    """An open log file, in the named format or that of its file name."""
    module = FORMATS[name or format_of(path)]
    with _opened(path, "rb") as file:
        yield module.read(file, skip_bad)


def write_log(
    path: Path, header: LogHeader, decisions: Iterable[LoggedDecision], name: str | None = None
) -> int:
    """Write a log file; returns the number of decisions."""
    module = FORMATS[name or format_of(path)]
    with _opened(path, "wb") as file:
        count: int = module.write(file, header, decisions)
    return count


def format_of(path: Path) -> str:
    """The format of a file by its name."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.removeprefix(".")
    if suffix not in FORMATS:
        raise LogFormatError(f"{path.name}: the name must end in one of {', '.join(FORMATS)}")
    return suffix


def _opened(path: Path, mode: str) -> IO[bytes]:
    if path.suffix == ".gz":
        # A fixed timestamp makes equal logs equal files.
        return cast("IO[bytes]", gzip.GzipFile(path, mode, mtime=0))
    return cast("IO[bytes]", path.open(mode))
