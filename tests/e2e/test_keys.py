"""A service that others reach, as a process: it asks for keys, and no secret leaves a trace."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from service.cli.main import app
from tests.e2e.conftest import Adopt
from tests.support.api import CONTEXT, DOSES
from tests.support.http.clients import client_of
from tests.support.keys import bearer
from tests.support.processes.daband import Daband, Server
from tests.support.waiting import PATIENT_ENVIRONMENT, eventually

ALL_SCOPES = [
    word for scope in ("select", "reward", "target", "admin") for word in ("--scope", scope)
]
EVERYWHERE = "0.0.0.0"  # noqa: S104


pytestmark = pytest.mark.usefixtures("keeps_logging")


async def daband(*arguments: str, **environment: str) -> str:
    """What a command that must succeed prints."""
    environment = {
        f"DABAND_{name}": value for name, value in (PATIENT_ENVIRONMENT | environment).items()
    }
    done = await asyncio.to_thread(CliRunner().invoke, app, list(arguments), env=environment)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


class Asking:
    """Asks with keys, and remembers all that was ever answered."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http
        self.heard = ""

    async def ask(self, key: str, method: str, path: str, **request: Any) -> httpx.Response:
        answer = await self._http.request(method, path, headers=bearer(key), **request)
        self.heard += f"{answer.headers} {answer.text}\n"
        return answer

    async def is_let_in(self, key: str) -> bool:
        return (await self.ask(key, "GET", "/experiments")).status_code == 200

    async def is_shut_out(self, key: str) -> bool:
        return (await self.ask(key, "GET", "/experiments")).status_code == 401


def everything_in(folder: Path) -> bytes:
    """The database, its side files and all output."""
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


async def work(asking: Asking, key: str) -> None:
    """All sorts of requests, good and bad."""
    assert (await asking.ask(key, "POST", "/experiments", json=DOSES)).status_code == 201
    body = {"experiment": "doses", "source": {"context": CONTEXT}}
    decided = (await asking.ask(key, "POST", "/select", json=body)).json()
    rewarded = {"decision_id": decided["source"]["decision_id"], "reward": 1.0}
    assert (await asking.ask(key, "POST", "/reward", json=rewarded)).status_code == 201
    for path, content in (("/select", key), ("/reward", json.dumps({"decision_id": key}))):
        assert (await asking.ask(key, "POST", path, content=content)).status_code == 422
    for path in (f"/experiments/{key}", f"/problems/{key}", f"/{key}", f"/evaluations/{key}"):
        assert (await asking.ask(key, "GET", path)).status_code == 404
    assert (await asking.ask(key, "GET", "/metrics")).status_code == 200
    await asking.ask(key[:-1], "POST", "/select", json=body)


async def test_keys_work_rotate_and_end_in_a_running_service_and_leave_no_trace(
    folder: Path, adopt: Adopt[Daband]
):
    data = ("--data-dir", str(folder / "data"))
    first = await daband("keys", "create", *ALL_SCOPES, *data)
    patient = {"KEY_POLL_SECONDS": "0.05"}
    server = Server(folder, "--host", EVERYWHERE, LOG_LEVEL="debug", **patient)
    adopt(server).start()
    await server.ready()
    async with client_of(server.url) as http:
        asking = Asking(http)
        await work(asking, first)
        listed = await daband("experiment", "list", "--url", server.url, API_KEY=first)
        assert json.loads(listed) == ["doses"]

        second = await daband("keys", "rotate", first.split("_")[1], "--overlap", "1h", *data)
        await eventually(lambda: asking.is_let_in(second), server)
        assert await asking.is_let_in(first)
        third = await daband("keys", "rotate", first.split("_")[1], "--overlap", "0s", *data)
        await eventually(lambda: asking.is_shut_out(first), server)
        assert await asking.is_shut_out(second)
        assert await asking.is_let_in(third)
        await daband("keys", "revoke", first.split("_")[1], *data)
        await eventually(lambda: asking.is_shut_out(third), server)

    assert server.stop() == 0
    written = everything_in(folder)
    assert b"service_stopped" in written
    assert first.split("_")[1].encode() in written  # the public half may be anywhere
    for key in (first, second, third):
        secret = key.split("_")[2]
        assert secret not in asking.heard
        assert secret.encode() not in written


async def test_a_service_that_others_reach_does_not_start_without_a_key(
    folder: Path, adopt: Adopt[Daband]
):
    server = Server(folder, "--host", EVERYWHERE)
    adopt(server).start()
    assert server.wait() == 2
    assert "needs keys, and there is none" in server.tail()
    assert "daband keys create" in server.tail()


async def test_the_loud_way_out_lets_everybody_in_and_says_so(folder: Path, adopt: Adopt[Daband]):
    server = Server(folder, "--host", EVERYWHERE, AUTH="dangerously-off")
    adopt(server).start()
    await server.ready()
    async with client_of(server.url) as http:
        assert (await http.get("/experiments")).status_code == 200
    assert server.lines("keys_off")
    assert "every caller has full access" in server.tail()
    assert server.stop() == 0
