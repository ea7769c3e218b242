"""Slow clients by the hundred (slowhttptest), and what normal clients notice of them.

`python -m tests.support.http.slow_clients` prints the p99 of normal selects with and without the attack, for
the shipped nginx and for the server alone.
"""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import httpx
import psutil

from daband_client import Client
from tests.support.api import CONTEXT, DOSES
from tests.support.measuring import percentile
from tests.support.processes import guard
from tests.support.processes.nginx import Nginx
from tests.support.processes.packages import program
from tests.support.processes.servers import running_server
from tests.support.processes.service import ServiceProcess
from tests.support.waiting import PATIENCE_SECONDS, wait_until

CONNECTIONS = 200
HEADERS, BODY, READ = "-H", "-B", "-X"
KINDS = {HEADERS: "headers", BODY: "body", READ: "reading"}
SELECT = {"experiment": DOSES["name"], "source": {"context": CONTEXT}}


class Attack:
    """slowhttptest with many connections of a few bytes a second each."""

    def __init__(self, kind: str, url: str, output: IO[bytes] | None = None) -> None:
        path = "/openapi.json" if kind == READ else "/select"
        pace = ("-c", str(CONNECTIONS), "-r", str(CONNECTIONS), "-i", "1", "-l", "600", "-p", "60")
        slow_reading = ("-k", "1", "-n", "1", "-w", "16", "-y", "32", "-z", "16")
        options = slow_reading if kind == READ else ("-s", "65536", "-x", "8")
        self._process = subprocess.Popen(
            [program("slowhttptest"), kind, *pace, *options, "-u", f"{url}{path}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if output is None else output,
            stderr=subprocess.DEVNULL,
        )
        guard.watch(self._process.pid)

    def connected(self) -> int:
        """How many of its connections the server still holds."""
        if not self.is_running:
            return 0
        found = psutil.Process(self._process.pid).net_connections("tcp")
        return sum(each.status == psutil.CONN_ESTABLISHED for each in found)

    def stand(self) -> None:
        """Wait until nearly all are connected at once."""
        wait_until(lambda: self.connected() >= CONNECTIONS * 9 // 10)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait for its end, which comes when the server has closed all connections."""
        self._process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        if self.is_running:
            self._process.kill()
        self._process.wait(PATIENCE_SECONDS)


@contextmanager
def attacked(kind: str, url: str) -> Iterator[Attack]:
    """All connections stand; they are gone afterwards."""
    attack = Attack(kind, url)
    try:
        attack.stand()
        yield attack
    finally:
        attack.end()


def selects(http: httpx.Client, count: int) -> list[float]:
    """The durations of `count` normal selects, all of which must succeed."""
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        answer = http.post("/select", json=SELECT)
        seconds.append(time.perf_counter() - started)
        assert answer.status_code == 200, answer.text
    return seconds


def compared(kind: str, url: str, turns: int, count: int) -> tuple[list[float], list[float]]:
    """Seconds of selects at peace and under attack, in turns that alternate."""
    peace: list[float] = []
    under: list[float] = []
    with httpx.Client(base_url=url, timeout=PATIENCE_SECONDS) as http:
        selects(http, count)
        for _ in range(turns):
            peace += selects(http, count)
            with attacked(kind, url):
                under += selects(http, count)
    return peace, under


@contextmanager
def front(folder: Path, **settings: str) -> Iterator[tuple[ServiceProcess, Nginx]]:
    """A service with an experiment, and the shipped nginx before it."""
    with (
        ServiceProcess(folder, **settings) as service,
        running_server(Nginx(service.port)) as nginx,
    ):
        with Client(service.url) as client:
            client.create_experiment(**DOSES)
        yield service, nginx


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, front(Path(folder)) as (service, nginx):
        runs = [("nginx", nginx.url, kind) for kind in KINDS]
        runs += [("the server alone", service.url, kind) for kind in (HEADERS, BODY)]
        for name, url, kind in runs:
            peace, under = compared(kind, url, turns=10, count=100)
            ratios = [_ratio(peace, under, percent) for percent in (50, 99)]
            print(f"{name}, slow {KINDS[kind]}: {', '.join(ratios)}", flush=True)  # noqa: T201


def _ratio(peace: list[float], under: list[float], percent: float) -> str:
    before, during = percentile(peace, percent), percentile(under, percent)
    return f"p{percent} {before * 1e3:.2f} → {during * 1e3:.2f} ms ({during / before:.2f} ×)"


if __name__ == "__main__":
    main()
