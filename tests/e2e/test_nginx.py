"""The shipped nginx before the real service."""

import asyncio
import json
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import numpy as np
import pytest

from daband_client import Client, Round
from service.errors import PayloadTooLarge, UnsupportedMediaType, plain_problem
from tests.support.api import CONTEXT, DOSES
from tests.support.processes.daband import Server, serving
from tests.support.processes.nginx import Nginx
from tests.support.processes.servers import free_port, running_server
from tests.support.waiting import PATIENCE_SECONDS, eventually, wait_until

PROBLEM = "application/problem+json"
SELECT = {"experiment": "doses", "source": {"context": CONTEXT}}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {
        "SLOW_REQUEST_SECONDS": "0.000001",  # a line for every request
    }
    with serving(tmp_path_factory.mktemp("service"), **settings) as running:
        yield running


@pytest.fixture(scope="module")
def nginx(service: Server) -> Iterator[Nginx]:
    with running_server(Nginx(service.port)) as running:
        with Client(running.url) as client:
            client.create_experiment(**DOSES)
        yield running


@pytest.fixture(scope="module")
def http(nginx: Nginx) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=nginx.url, timeout=PATIENCE_SECONDS) as client:
        yield client


def problem(answer: httpx.Response) -> dict[str, Any]:
    assert answer.headers["content-type"] == PROBLEM
    found: dict[str, Any] = answer.json()
    assert found["status"] == answer.status_code
    assert found["request_id"] == answer.headers["x-request-id"]
    assert found["instance"] == f"urn:daband:request:{found['request_id']}"
    return found


def is_kind(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return all(found[name] == expected[name] for name in ("type", "title", "status"))


def test_decisions_and_rewards_pass(nginx: Nginx):
    with Client(nginx.url) as client:
        selected = client.select("doses", Round(source=CONTEXT))
        assert selected.source is not None
        assert client.reward(selected.source.decision_id, 1).status == "created"


def lines_about(request_id: str, log: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    return [line for line in lines if line.get("request_id") == request_id]


def both_log(request_id: str, nginx: Nginx, service: Server) -> list[str]:
    """The statuses in nginx's lines; a line is written after the answer, so one waits for it."""
    wait_until(lambda: bool(lines_about(request_id, nginx.log)))
    wait_until(lambda: bool(lines_about(request_id, service.printed)))
    return [line["status"] for line in lines_about(request_id, nginx.log)]


def test_the_callers_request_id_comes_back_and_is_in_both_logs(
    http: httpx.Client, nginx: Nginx, service: Server
):
    answer = http.post("/select", json={}, headers={"X-Request-ID": "lab-7:42"})
    assert problem(answer)["request_id"] == "lab-7:42"
    assert both_log("lab-7:42", nginx, service) == ["422"]


@pytest.mark.parametrize("given", [None, "x" * 129, 'quote"it', "sp ace"])
def test_another_id_is_made_where_the_callers_is_none(
    http: httpx.Client, nginx: Nginx, service: Server, given: str | None
):
    answer = http.get("/healthz", headers={} if given is None else {"X-Request-ID": given})
    made = answer.headers["x-request-id"]
    assert answer.status_code == 200
    assert made != given
    assert both_log(made, nginx, service) == ["200"]  # nginx's own, which the service takes


def test_a_body_over_the_limit_is_refused_as_the_service_would(http: httpx.Client):
    found = problem(http.post("/select", content=b"x" * 8388609))
    assert is_kind(found, PayloadTooLarge().problem())
    assert (found["detail"], found["max_bytes"]) == (PayloadTooLarge().detail, 8388608)


UPLOADS = ("/target/contexts?experiment=doses", "/experiments/doses/history?arm=a&reward=r")


@pytest.mark.parametrize("path", UPLOADS)
async def test_an_upload_has_a_limit_of_its_own(nginx: Nginx, path: str):
    reader, writer = await spoken(nginx, post(path, 4294967297))
    answer = await reader.readuntil(b"}")
    writer.close()
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert json.loads(answer[answer.index(b"{") :])["max_bytes"] == 4294967296


@pytest.mark.parametrize("path", ["/select", *UPLOADS])
@pytest.mark.parametrize("encoding", ["gzip", "br", "identity, gzip"])
def test_compressed_bodies_are_refused(http: httpx.Client, path: str, encoding: str):
    answer = http.post(path, content=b"\x1f\x8b", headers={"Content-Encoding": encoding})
    assert is_kind(problem(answer), UnsupportedMediaType().problem())


def test_a_body_that_is_not_compressed_may_say_so(http: httpx.Client):
    answer = http.post("/select", json=SELECT, headers={"Content-Encoding": "identity"})
    assert answer.status_code == 200


def test_problems_of_the_service_pass_as_they_are(http: httpx.Client):
    assert problem(http.get("/experiments/nobody"))["type"] == "/problems/unknown-experiment"
    assert problem(http.get("/nowhere"))["type"] == "about:blank"
    assert problem(http.delete("/select"))["status"] == 405


def test_metrics_are_not_for_the_outside(http: httpx.Client, service: Server):
    assert is_kind(problem(http.get("/metrics")), plain_problem(404))
    assert httpx.get(f"{service.url}/metrics").status_code == 200


def test_headers_that_are_too_large_are_refused_in_our_shape(http: httpx.Client):
    assert is_kind(problem(http.get("/healthz", headers={"X": "y" * 9000})), plain_problem(431))


def test_an_upload_passes(http: httpx.Client, tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("upload") / "contexts.npy"
    np.save(path, np.zeros((20_000, len(CONTEXT)), np.float32))
    headers = {"Content-Type": "application/x-npy"}
    with path.open("rb") as file:
        answer = http.post("/target/contexts?experiment=doses", content=file, headers=headers)
    assert (answer.status_code, answer.json()["contexts"]) == (201, 20_000)


def test_a_service_that_is_away_is_a_503_that_can_be_tried_again():
    with running_server(Nginx(free_port())) as nginx:
        answer = httpx.post(f"{nginx.url}/select", json=SELECT, timeout=PATIENCE_SECONDS)
    assert is_kind(problem(answer), plain_problem(503))
    assert answer.headers["retry-after"] == "1"


class Upstream:
    """Takes connections and bytes, and answers nothing."""

    def __init__(self) -> None:
        self.received = b""
        self._changed = asyncio.Event()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(1 << 16):
            self.received += piece
            self._changed.set()
        writer.close()

    async def has(self, words: bytes) -> None:
        """Wait until these have arrived."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while words not in self.received:
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def before_silence(**changes: str) -> AsyncIterator[tuple[Nginx, Upstream]]:
    """nginx before an upstream that only listens."""
    upstream = Upstream()
    server = await asyncio.start_server(upstream.take, "127.0.0.1", 0)
    async with server:
        nginx = Nginx(server.sockets[0].getsockname()[1], **changes)
        try:
            await asyncio.to_thread(nginx.start)
            yield nginx, upstream
        finally:
            await asyncio.to_thread(nginx.remove)


async def test_a_service_that_does_not_answer_in_time_is_a_504():
    async with (
        before_silence(proxy_read_timeout="30s -> 1s") as (nginx, _),
        httpx.AsyncClient(timeout=PATIENCE_SECONDS) as http,
    ):
        answer = await http.post(f"{nginx.url}/select", json=SELECT)
    assert is_kind(problem(answer), plain_problem(504))
    assert answer.headers["retry-after"] == "1"


async def spoken(nginx: Nginx, words: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", nginx.port)
    writer.write(words)
    return reader, writer


async def hung_up(reader: asyncio.StreamReader) -> None:
    """Wait until nginx has closed the connection, or reset it, which keeps nothing of it."""
    with suppress(ConnectionResetError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            await reader.read()


def post(path: str, length: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: here\r\nContent-Length: {length}\r\n\r\n".encode()


async def test_an_upload_is_passed_on_while_it_arrives():
    async with before_silence() as (nginx, upstream):
        _, writer = await spoken(nginx, post("/target/contexts", 1 << 30) + b"the first piece")
        await upstream.has(b"the first piece")
        writer.write(b"and another")
        await upstream.has(b"and another")
        writer.close()


async def test_a_slow_body_never_reaches_the_service_and_is_given_up():
    async with before_silence(client_body_timeout="10s -> 1s") as (nginx, upstream):
        reader, writer = await spoken(nginx, post("/select", 1000) + b'{"experiment"')
        await hung_up(reader)
        writer.close()
        assert upstream.received == b""
        await eventually(lambda: '"status": "408"' in nginx.log)


async def test_slow_headers_are_given_up_however_they_drip_in():
    async with before_silence(client_header_timeout="10s -> 1s") as (nginx, upstream):
        reader, writer = await spoken(nginx, b"POST /select HTTP/1.1\r\n")

        async def drip() -> None:
            while not writer.is_closing():
                writer.write(b"X-A: b\r\n")
                await asyncio.sleep(0.1)

        dripping = asyncio.create_task(drip())
        await hung_up(reader)
        dripping.cancel()
        writer.close()
        assert upstream.received == b""


def certificate(nginx: Nginx) -> None:
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    key, cert = nginx.folder / "tls_key", nginx.folder / "tls_certificate"
    files = ("-keyout", str(key), "-out", str(cert))
    subprocess.run([*made, *names, *files], check=True, capture_output=True)
    key.chmod(0o644)  # nginx runs as nobody here


def test_the_tls_listeners_serve_https(service: Server):
    nginx = Nginx(service.port, listeners="listeners-tls")
    certificate(nginx)
    with running_server(nginx):
        trusted = ssl.create_default_context(cafile=nginx.folder / "tls_certificate")
        answer = httpx.get(f"https://localhost:{nginx.tls_port}/healthz", verify=trusted)
        assert answer.json() == {"status": "ok"}
        assert httpx.get(f"{nginx.url}/healthz").is_success
