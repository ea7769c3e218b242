"""The service as a process: it starts, survives abuse, and shuts down gracefully."""

import asyncio
import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from daband_client import Client, Round
from service.records import EventKind
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from tests.support.api import CONTEXT, DOSES
from tests.support.http.clients import client_of
from tests.support.processes.daband import Server, serving
from tests.support.processes.service import ServiceProcess
from tests.support.storage import PATIENT, sqlite_url
from tests.support.waiting import PATIENCE_SECONDS

JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    folder = tmp_path_factory.mktemp("service")
    with ServiceProcess(folder, MAX_BODY_BYTES="2097152") as running:
        with Client(running.url) as client:
            client.create_experiment(**DOSES)
        yield running


def raw(
    service: ServiceProcess | Server, head: str, *parts: bytes, then_close: bool = False
) -> bytes:
    """Send bytes as they are; all that comes back."""
    with socket.create_connection(
        ("127.0.0.1", service.port), timeout=PATIENCE_SECONDS
    ) as connection:
        connection.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n")
        try:
            for part in parts:
                connection.sendall(part)
            if then_close:
                connection.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has heard enough
        return _everything(connection)


def _everything(connection: socket.socket) -> bytes:
    received = b""
    try:
        while part := connection.recv(65536):
            received += part
    except ConnectionResetError:
        pass
    return received


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def post(path: str, *headers: str) -> str:
    return "\n".join((f"POST {path} HTTP/1.1", "Host: test", "Connection: close", *headers))


def test_the_banner_says_where_everything_is(service: ServiceProcess):
    for line in (f"{service.url}/docs", "SQLite in", "device   cpu", "Ctrl-C"):
        assert line in service.stderr
    assert httpx.get(f"{service.url}/readyz").json() == {"status": "ready"}


def test_log_lines_are_json(service: ServiceProcess):
    lines = [json.loads(line) for line in service.stdout.splitlines()]
    assert "service_started" in {line["action"] for line in lines}


def test_a_round_is_played_over_a_real_socket(service: ServiceProcess):
    with Client(service.url) as client:
        selected = client.select("doses", Round(source=CONTEXT))
        assert selected.source is not None
        assert client.reward(selected.source.decision_id, 1).status == "created"


def test_a_body_shorter_than_its_content_length_is_given_up(tmp_path: Path):
    with serving(tmp_path, BODY_TIMEOUT_SECONDS=0.1) as service:
        answer = raw(service, post("/select", JSON, "Content-Length: 1000"), b'{"experiment"')
    assert status(answer) == 408
    assert b"application/problem+json" in answer


def test_a_body_longer_than_its_content_length_is_cut_and_refused(service: ServiceProcess):
    body = b'{"decision_id": "d", "reward": 1}'
    assert status(raw(service, post("/reward", JSON, "Content-Length: 5"), body)) == 422


@pytest.mark.parametrize("length", ["-1", "many", "1e3", "99999999999999999999999"])
def test_a_content_length_that_is_none_is_refused(service: ServiceProcess, length: str):
    answer = raw(service, post("/select", JSON, f"Content-Length: {length}"), b"{}")
    assert 400 <= status(answer) < 500


def test_an_oversized_body_is_refused_before_it_is_sent(service: ServiceProcess):
    answer = raw(service, post("/select", JSON, "Content-Length: 10000000000"))
    assert status(answer) == 413


def test_an_oversized_body_in_chunks_is_refused_while_it_is_sent(service: ServiceProcess):
    chunk = b"80000\r\n" + b"x" * 0x80000 + b"\r\n"
    answer = raw(service, post("/select", JSON, "Transfer-Encoding: chunked"), *[chunk] * 8)
    assert status(answer) == 413


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b'{"experiment": "doses", "source": {"context": ' + b"[" * 1_000_000,
        b'{"experiment": "doses", "source": {"context": [' + b"9" * 1_000_000 + b"]}}",
        b'{"experiment": "doses", "source": {"context": [1e39, 0, 0, 0]}}',
        b'{"experiment": "doses", "source": {"context": [NaN, 0, 0, 0]}}',
        b'{"experiment": "\\ud800"}',
        b'{"experiment": "a\\u0000b", "source": {"context": [0]}}',
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_hostile_json_is_refused(service: ServiceProcess, body: bytes):
    answer = raw(service, post("/select", JSON, f"Content-Length: {len(body)}"), body)
    assert status(answer) == 422


@pytest.mark.parametrize(
    "header",
    ["Content-Type: text/html", "Content-Type: application/x-pickle", "Content-Encoding: gzip"],
)
def test_what_cannot_be_read_is_refused(service: ServiceProcess, header: str):
    assert status(raw(service, post("/reward", header, "Content-Length: 2"), b"{}")) == 415


def test_what_is_no_http_is_refused(service: ServiceProcess):
    assert status(raw(service, "HELO there")) == 400


def test_the_abuse_has_left_no_trace(service: ServiceProcess):
    assert httpx.get(f"{service.url}/readyz").status_code == 200
    failures = [line for line in service.stdout.splitlines() if '"request_failed"' in line]
    assert failures == []


async def logged_ids(folder: Path) -> set[str]:
    async with Database.opened(sqlite_url(folder / "data" / "daband.db"), PATIENT) as database:
        experiment = await Experiments(database).get("doses")
        events = await EventLog(database).read(experiment.experiment_id, after=0, limit=100_000)
    return {event.event_key for event in events if event.kind is EventKind.DECISION}


class Load:
    """Clients that send requests until the server stops listening."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.answered: set[str] = set()
        self.failures: list[str] = []
        self.reached = asyncio.Event()

    async def run(self, clients: int) -> None:
        await asyncio.gather(*(self._ask() for _ in range(clients)))

    async def _ask(self) -> None:
        body = {"experiment": "doses", "source": {"context": CONTEXT}}
        async with client_of(self._url) as client:
            while True:
                try:
                    answer = await client.post("/select", json=body)
                except (httpx.ConnectError, httpx.ReadError):
                    # It no longer listens. The kernel resets the connections that wait to be accepted.
                    return
                except httpx.TransportError as error:
                    self.failures.append(repr(error))
                    return
                if answer.status_code != 200:
                    self.failures.append(answer.text)
                    return
                self.answered.add(answer.json()["source"]["decision_id"])
                if len(self.answered) > 100:
                    self.reached.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_under_load_fails_no_accepted_request(tmp_path: Path, number: signal.Signals):
    with serving(tmp_path) as service:
        with Client(service.url) as client:
            client.create_experiment(**DOSES)
        load = Load(service.url)
        asking = asyncio.create_task(load.run(clients=8))
        await load.reached.wait()
        service.send_to_parent(number)
        await asking
        assert await asyncio.to_thread(service.wait) == 0
    assert load.failures == []
    assert load.answered == await logged_ids(tmp_path)  # whatever was accepted is answered
    lines = [line for line in service.printed.splitlines() if line.startswith("{")]
    actions = [json.loads(line)["action"] for line in lines]
    assert actions[-1] == "service_stopped"
    assert "service_draining" in actions


def test_a_second_start_finds_what_the_first_left(tmp_path: Path):
    decisions = []
    for _ in range(2):
        with serving(tmp_path) as service, Client(service.url) as client:
            client.create_experiment(**DOSES)
            selected = client.select("doses", Round(source=CONTEXT, request_id="r-1"))
            decisions.append(selected)
            assert service.stop() == 0
    assert decisions[0] == decisions[1]
