"""The closed set of experiment labels: the first experiments by name, then `other`."""

import fcntl
import json
from pathlib import Path

MAX_EXPERIMENTS = 50
OTHER = "other"
FILE_NAME = "experiments.jsonl"


class ExperimentLabels:
    """Gives an experiment its label, the same in all processes that share the folder."""

    def __init__(self, folder: Path | None) -> None:
        self._file = None if folder is None else folder / FILE_NAME
        self._named: set[str] = set()

    def of(self, name: str) -> str:
        """The name for the first 50 experiments, then `other`."""
        if name in self._named:
            return name
        if len(self._named) < MAX_EXPERIMENTS:
            self._claim(name)
        return name if name in self._named else OTHER

    def _claim(self, name: str) -> None:
        if self._file is None:
            self._named.add(name)
        else:
            self._named = _claimed(self._file, name)


def _claimed(file: Path, name: str) -> set[str]:
    """All names with a label, including this one if there is room."""
    with file.open("a+") as claims:
        fcntl.flock(claims, fcntl.LOCK_EX)
        claims.seek(0)
        named = {json.loads(line) for line in claims}
        if name not in named and len(named) < MAX_EXPERIMENTS:
            claims.write(json.dumps(name) + "\n")
            named.add(name)
    return named
