"""Whatever fits the OpenAPI description, or just does not: no 5xx and no answer it does not name."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.app import create_app
from service.client import Client, Round
from service.settings import Settings
from tests.support.api import CONTEXT, DOSES, OFFERS
from tests.support.storage import sqlite_url
from tests.support.waiting import PATIENCE_SECONDS, PATIENT_SETTINGS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
DESCRIPTION = create_app(Settings()).openapi()
OPERATIONS = [
    (path, method) for path, methods in DESCRIPTION["paths"].items() for method in methods
]


@schemathesis.serializer("application/msgpack")
def _msgpack(context: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value, enc_hook=str)
    except OverflowError:  # msgpack has no such integers: send something that it is not
        return msgspec.json.encode(str(value))


class ThreadedServer(uvicorn.Server):
    """The app behind a real socket, in a thread of the test's process."""

    def __init__(self, app: Any) -> None:
        super().__init__(uvicorn.Config(app, log_config=None, access_log=False, lifespan="on"))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.run(self.serve(sockets=[self._listener]))

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.should_exit = True
        self._thread.join(PATIENCE_SECONDS)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service that knows two experiments and a decision."""
    path: Path = tmp_path_factory.mktemp("schemathesis") / "daband.db"
    given_: dict[str, Any] = {
        "database_url": sqlite_url(path),
        "trainer_inside": False,
        **PATIENT_SETTINGS,
    }
    server = ThreadedServer(create_app(Settings(**given_)))
    server.start()
    with Client(server.url) as client:
        for declared in (DOSES, OFFERS):
            client.create_experiment(**declared)
        client.select("doses", Round(source=np.array(CONTEXT), request_id="r-1"))
    yield server.url
    server.stop()


def made_likely(case: Any) -> None:
    """Lead half of the cases to things that exist: all others end at the first look-up."""
    if len(str(case.path_parameters)) % 2 and "name" in (case.path_parameters or {}):
        case.path_parameters["name"] = "doses"
    if isinstance(case.body, dict) and len(str(case.body)) % 2 and "experiment" in case.body:
        case.body["experiment"] = "doses"


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.filterwarnings("ignore")  # of the tool's own dependencies
def test_every_answer_is_described(url: str, path: str, method: str, mode: GenerationMode):
    operation = schemathesis.openapi.from_dict(DESCRIPTION)[path][method]
    is_negative = mode is GenerationMode.NEGATIVE
    if is_negative and not (operation.body or operation.path_parameters or operation.query):
        return  # there is nothing to get wrong

    @settings(
        max_examples=15,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def check(case: Any) -> None:
        made_likely(case)
        response = case.call(base_url=url)
        case.validate_response(response, checks=CHECKS)

    # Some parameters are any text at all: nothing is wrong for them.
    with suppress(Unsatisfiable) if is_negative else nullcontext():
        check()
