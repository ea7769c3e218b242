"""Finished runs, one JSON line each: a run that is there is not run again."""

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Record = Mapping[str, Any]
Key = tuple[Any, ...]
# What makes two runs the same one.
KEY = ("dataset", "method", "seed", "rounds", "test_count", "config_digest", "device_kind")


def key_of(record: Record) -> Key:
    """What a run is known by."""
    return tuple(record[name] for name in KEY)


class RunsFile:
    """A file that only grows; several threads may append."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._drop_half_a_line()

    def records(self) -> list[dict[str, Any]]:
        """All runs, the oldest first."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def has(self, key: Key, continued_rounds: int) -> bool:
        """Whether the run exists, with at least this many rounds of continued training."""
        return any(
            key_of(record) == key and len_continued(record) >= continued_rounds
            for record in self.records()
        )

    def append(self, record: Record) -> None:
        """Add a finished run."""
        line = json.dumps(record, allow_nan=False) + "\n"
        with self._lock, self.path.open("a") as file:
            file.write(line)

    def _drop_half_a_line(self) -> None:
        """What a killed process left: its run is not finished."""
        if not self.path.exists():
            return
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            self.path.write_bytes(whole)


def len_continued(record: Record) -> int:
    """Rounds of continued training in a run."""
    continued = record["continued"]
    return int(continued["rounds"][-1]) if continued else 0
