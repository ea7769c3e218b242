"""A real Prometheus for the tests, with its promtool: a child process on a free port.

The binaries are looked for in the folder that `DABAND_TEST_PROMETHEUS` names, then on the system,
then installed as a package where that is allowed. When there are none the tests fail.
"""

import json
import math
import os
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from monitoring.alerts import FOLDER
from tests.support.processes.packages import program
from tests.support.processes.servers import Server
from tests.support.waiting import PATIENCE_SECONDS

SCRAPE = "1s"
GIVEN = "DABAND_TEST_PROMETHEUS"


@cache
def binary(name: str) -> str:
    """The path of `prometheus` or `promtool`."""
    if given := os.environ.get(GIVEN):
        return str(Path(given) / name)
    return program(name, package="prometheus")


def promtool(*arguments: str | Path) -> str:
    """What promtool says; it must be content."""
    command = [binary("promtool"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


class PrometheusServer(Server):
    """Scrapes as the shipped configuration says, but often, and what `find` says that there is."""

    def __init__(self) -> None:
        super().__init__("prometheus")
        for rules in FOLDER.glob("*.rules.yml"):
            shutil.copy(rules, self.folder)
        self._config = self.folder / "prometheus.yml"
        config = yaml.safe_load((FOLDER / "prometheus.yml").read_text())
        self._jobs = [_found_by_files(job) for job in config["scrape_configs"]]
        config["global"] = {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE}
        self._config.write_text(yaml.safe_dump(config))

    def find(self, job: str, *addresses: str) -> None:
        """Have a job scrape these addresses from now on; it looks at its file for changes."""
        assert job in self._jobs
        fresh = self.folder / f"{job}.new"
        fresh.write_text(json.dumps([{"targets": addresses}]))
        fresh.rename(self.folder / f"{job}.json")

    def command(self) -> list[str]:
        return [
            binary("prometheus"),
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]

    def is_answering(self) -> bool:
        try:
            self._ask("/-/ready")
        except OSError:
            return False
        return True

    def values(self, query: str) -> list[float]:
        """The values of an instant query that are numbers."""
        encoded = urllib.parse.urlencode({"query": query})
        try:
            answer = json.loads(self._ask(f"/api/v1/query?{encoded}"))
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{query}: {error.read().decode()}") from error
        found = [float(sample["value"][1]) for sample in answer["data"]["result"]]
        return [value for value in found if not math.isnan(value)]

    def _ask(self, path: str) -> bytes:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{self.port}{path}", timeout=PATIENCE_SECONDS
        ) as answer:
            body: bytes = answer.read()
            return body


def _found_by_files(job: dict[str, Any]) -> str:
    """Have files take the place of the name server, which tests do not have; the job's name."""
    name = str(job["job_name"])
    del job["dns_sd_configs"]
    job["file_sd_configs"] = [{"files": [f"{name}.json"], "refresh_interval": SCRAPE}]
    return name
