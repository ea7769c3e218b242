"""The service as a user starts it: a process of its own."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.support.processes import guard
from tests.support.waiting import PATIENCE_SECONDS, PATIENT_ENVIRONMENT, wait_until

ROOT = Path(__file__).parents[3]
BANNER = re.compile(r"daband serves on (http://\S+)")


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Ours without any setting of the service."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("DABAND_")}
    return {**ours, "PYTHONUNBUFFERED": "1", **(extra or {})}


class ServiceProcess:
    """`daband serve` on a free port, by the code of a checkout; its output is kept in the folder."""

    def __init__(
        self, folder: Path, *options: str, checkout: Path | str = ROOT, **settings: str
    ) -> None:
        self._folder = folder
        self._checkout = checkout
        self._command = [
            *(sys.executable, "-m", "service.cli", "serve", "--port", "0"),
            *("--data-dir", str(folder / "data"), *options),
        ]
        given = {**PATIENT_ENVIRONMENT, **settings}
        self._environment = {f"DABAND_{name}": value for name, value in given.items()}
        self.url = ""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ServiceProcess":
        with self._file("out").open("ab") as out, self._file("err").open("ab") as err:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._checkout,
                env=clean_environment(self._environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        guard.watch(self._process.pid)
        self._wait_for_banner()
        return self

    def __exit__(self, *raised: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(PATIENCE_SECONDS)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def stdout(self) -> str:
        return self._file("out").read_text()

    @property
    def stderr(self) -> str:
        return self._file("err").read_text()

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """End it in order."""
        self.signal(signal.SIGTERM)
        assert self.wait() == 0, self.stderr

    def wait(self) -> int:
        """The exit code."""
        assert self._process is not None
        return self._process.wait(PATIENCE_SECONDS)

    def _wait_for_banner(self) -> None:
        assert self._process is not None
        wait_until(self._has_banner)
        found = BANNER.search(self.stderr)
        assert found is not None
        self.url = found[1]

    def _has_banner(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self.stderr}\n{self.stdout}"
        return BANNER.search(self.stderr) is not None

    def _file(self, name: str) -> Path:
        return self._folder / f"std{name}.log"
