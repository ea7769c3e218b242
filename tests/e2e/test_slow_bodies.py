"""A real server with places for sixteen requests, all of which are asked for by bodies that do not come."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from daband_client import Client
from tests.support.api import DOSES
from tests.support.http.slow_clients import SELECT
from tests.support.processes.daband import Server, serving
from tests.support.waiting import PATIENCE_SECONDS, eventually

PLACES = 16
CONTENT = json.dumps(SELECT).encode()
HEAD = (
    f"POST /select HTTP/1.1\r\nHost: here\r\nContent-Length: {len(CONTENT)}\r\n"
    "Content-Type: application/json\r\n\r\n"
).encode()
SETTINGS = {
    "MAX_IN_FLIGHT": str(PLACES),
    "BODY_TIMEOUT_SECONDS": "3600",
}


class Connection:
    """A caller that sends its request in given pieces."""

    def __init__(self, service: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", service.port), PATIENCE_SECONDS)
        self._file = self.socket.makefile("rb")

    def send(self, piece: bytes) -> None:
        self.socket.sendall(piece)

    def status(self) -> int:
        """Of the next answer, which is read to its end."""
        status = int(self._file.readline().split()[1])
        headers = dict(iter(self._header, None))
        self._file.read(int(headers[b"content-length"]))
        return status

    def _header(self) -> tuple[bytes, bytes] | None:
        line = self._file.readline().strip()
        name, _, value = line.partition(b":")
        return (name.lower(), value) if line else None

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("service"), **SETTINGS) as running:
        with Client(running.url) as client:
            client.create_experiment(**DOSES)
        yield running


def in_flight(service: Server) -> float:
    received = httpx.get(f"{service.url}/metrics", timeout=PATIENCE_SECONDS).text
    (line,) = (
        each for each in received.splitlines() if each.startswith("daband_requests_in_flight ")
    )
    return float(line.split()[1])


async def test_slow_bodies_take_no_place_in_the_limit_and_are_answered_when_complete(
    service: Server,
):
    with ExitStack() as stack:

        def connection() -> Connection:
            made = Connection(service)
            stack.callback(made.close)
            return made

        slow = [connection() for _ in range(PLACES)]
        for each in slow:
            each.send(HEAD + CONTENT[:1])
        await eventually(lambda: in_flight(service) == PLACES)
        quick, late = connection(), connection()
        for _ in range(2 * PLACES):
            quick.send(HEAD + CONTENT)
            assert quick.status() == 200
        late.send(HEAD + CONTENT[:1])
        assert late.status() == 503, "so many may wait for their bodies, and no more"
        assert late.socket.recv(1) == b"", "nobody waits for the rest of it"
        for each in slow:
            each.send(CONTENT[1:])
            assert each.status() == 200
        await eventually(lambda: in_flight(service) == 0)
