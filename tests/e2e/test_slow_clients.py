"""Two hundred slow clients: normal ones are served on, the slow ones are hung up on.

What they cost in time is a figure (`python -m tests.support.http.slow_clients`, in docs/testing.md). Here it
is counted what happens, and what CPU it takes, which a busy machine does not change.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from tests.support.http.slow_clients import (
    BODY,
    CONNECTIONS,
    HEADERS,
    READ,
    Attack,
    attacked,
    front,
    selects,
)
from tests.support.measuring import Measured
from tests.support.processes.nginx import Nginx
from tests.support.processes.servers import running_server
from tests.support.processes.service import ServiceProcess
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.slow

TURNS, COUNT = 3, 40
MOST = 2.0
LONG = {"HEADER_TIMEOUT_SECONDS": "120", "BODY_TIMEOUT_SECONDS": "120"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, Nginx]]:
    """A service that lets slow clients stay, and the shipped nginx before it."""
    with front(tmp_path_factory.mktemp("service"), **LONG) as running:
        yield running


@pytest.fixture(scope="module")
def lenient(served: tuple[ServiceProcess, Nginx]) -> Iterator[Nginx]:
    """An nginx that lets them stay, too, however long a busy machine takes over the test."""
    longer = {"client_header_timeout": "10s -> 120s", "client_body_timeout": "10s -> 120s"}
    with running_server(Nginx(served[0].port, **longer, send_timeout="10s -> 120s")) as running:
        yield running


@pytest.mark.parametrize("kind", [HEADERS, BODY, READ])
def test_nginx_serves_normal_clients_beside_slow_ones(lenient: Nginx, kind: str):
    with (
        httpx.Client(base_url=lenient.url, timeout=PATIENCE_SECONDS) as http,
        attacked(kind, lenient.url) as attack,
    ):
        selects(http, COUNT)
        assert attack.connected() >= CONNECTIONS * 9 // 10 or kind == READ


@pytest.mark.parametrize("kind", [HEADERS, BODY])
def test_the_server_alone_serves_them_beside_slow_ones(
    served: tuple[ServiceProcess, Nginx], kind: str
):
    service, _ = served
    with (
        httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as http,
        attacked(kind, service.url) as attack,
    ):
        selects(http, COUNT)
        assert attack.connected() >= CONNECTIONS * 9 // 10


def test_slow_headers_cost_no_more_cpu_than_the_selects(
    served: tuple[ServiceProcess, Nginx], lenient: Nginx, measured: Measured
):
    service, _ = served
    peace = under = 0.0
    with httpx.Client(base_url=lenient.url, timeout=PATIENCE_SECONDS) as http:
        selects(http, COUNT)
        for _ in range(TURNS):
            peace += cpu_of_selects(service, lenient, http)
            with attacked(HEADERS, lenient.url):
                under += cpu_of_selects(service, lenient, http)
    measured.at_most("CPU of selects beside slow headers, ratio", under / peace, MOST)


def cpu_of_selects(service: ServiceProcess, nginx: Nginx, http: httpx.Client) -> float:
    """Seconds of CPU of the service and of nginx's processes."""
    processes = [psutil.Process(service.process_id), *nginx.processes()]
    before = sum(sum(each.cpu_times()[:2]) for each in processes)
    selects(http, COUNT)
    return sum(sum(each.cpu_times()[:2]) for each in processes) - before


def test_nginx_as_shipped_hangs_up_on_slow_headers(
    served: tuple[ServiceProcess, Nginx], tmp_path: Path
):
    output = tmp_path / "attack.log"
    with output.open("wb") as file:
        attack = Attack(HEADERS, served[1].url, file)
    try:
        attack.wait()
    finally:
        attack.end()
    assert b"No open connections left" in output.read_bytes()
