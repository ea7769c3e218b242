"""Two hundred slow clients: normal ones are served on, the slow ones are hung up on.

What they cost in time is a figure of `python -m tests.e2e.slow_clients`, in docs/testing.md. Here
the median of many short turns that alternate is compared, with room for a busy machine.
"""

from collections.abc import Iterator
from statistics import median

import httpx
import pytest

from tests.e2e.slow_clients import (
    BODY,
    CONNECTIONS,
    HEADERS,
    READ,
    attacked,
    compared,
    front,
    selects,
)
from tests.nginx_process import Nginx
from tests.service_process import ServiceProcess

TURNS, COUNT = 4, 25
MOST_OF_THE_MEDIAN = 2.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServiceProcess, Nginx]]:
    short = {"HEADER_TIMEOUT_SECONDS": "4", "BODY_TIMEOUT_SECONDS": "4"}
    with front(tmp_path_factory.mktemp("service"), **short) as running:
        yield running


@pytest.fixture
def nginx(served: tuple[ServiceProcess, Nginx]) -> Nginx:
    return served[1]


def test_slow_headers_do_not_slow_normal_clients_down(nginx: Nginx):
    peace, under = compared(HEADERS, nginx.url, TURNS, COUNT)
    assert median(under) <= MOST_OF_THE_MEDIAN * median(peace)


@pytest.mark.parametrize("kind", [BODY, READ])
def test_normal_clients_are_served_beside_slow_ones(nginx: Nginx, kind: str):
    with httpx.Client(base_url=nginx.url, timeout=60) as http, attacked(kind, nginx.url):
        selects(http, COUNT)


def test_nginx_hangs_up_on_slow_headers(nginx: Nginx):
    with attacked(HEADERS, nginx.url) as attack:
        attack.until(0, CONNECTIONS // 10)


@pytest.mark.parametrize("kind", [HEADERS, BODY])
def test_the_server_alone_serves_on_and_hangs_up(served: tuple[ServiceProcess, Nginx], kind: str):
    service, _ = served
    with (
        httpx.Client(base_url=service.url, timeout=60) as http,
        attacked(kind, service.url) as attack,
    ):
        selects(http, COUNT)
        attack.until(0, CONNECTIONS // 10)
        selects(http, COUNT)
