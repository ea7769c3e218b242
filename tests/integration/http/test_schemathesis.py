"""Whatever fits the OpenAPI description, or just does not: no 5xx and no answer it does not name.

Services listen on real sockets, with the fast path and without it. Requests to fast routes go to both.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from daband_client import Client, Round
from service.app import create_app
from service.routes import decisions, target
from service.settings import Settings
from tests.support.api import CONTEXT, DOSES, OFFERS
from tests.support.http.threaded import ThreadedServer
from tests.support.storage import sqlite_url
from tests.support.waiting import PATIENT_SETTINGS

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
DESCRIPTION = create_app(Settings()).openapi()
FAST_ROUTES: list[Any] = [*decisions.router.routes, *target.fast_router.routes]
FAST = {route.path for route in FAST_ROUTES}
OPERATIONS = [
    (path, method) for path, methods in DESCRIPTION["paths"].items() for method in methods
]
SCHEMA = schemathesis.openapi.from_dict(DESCRIPTION)


@schemathesis.serializer("application/msgpack")
def _msgpack(context: Any, value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value, enc_hook=str)
    except OverflowError:  # msgpack has no such integers: send something that it is not
        return msgspec.json.encode(str(value))


@contextmanager
def serving(folder: Path, *, has_fast_path: bool) -> Iterator[str]:
    """A service that knows two experiments and a decision; where it is."""
    url = sqlite_url(folder / "daband.db")
    given_: dict[str, Any] = {"database_url": url, "trainer_inside": False, **PATIENT_SETTINGS}
    server = ThreadedServer(create_app(Settings(**given_)), has_fast_path=has_fast_path)
    server.start()
    try:
        with Client(server.url) as client:
            for declared in (DOSES, OFFERS):
                client.create_experiment(**declared)
            client.select("doses", Round(source=np.array(CONTEXT), request_id="r-1"))
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with the fast path."""
    with serving(tmp_path_factory.mktemp("fast"), has_fast_path=True) as url:
        yield url


@pytest.fixture(scope="module")
def slow_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service without it."""
    with serving(tmp_path_factory.mktemp("slow"), has_fast_path=False) as url:
        yield url


def made_likely(case: Any) -> None:
    """Lead half of the cases to things that exist: all others end at the first look-up."""
    if len(str(case.path_parameters)) % 2 and "name" in (case.path_parameters or {}):
        case.path_parameters["name"] = "doses"
    if isinstance(case.body, dict) and len(str(case.body)) % 2 and "experiment" in case.body:
        case.body["experiment"] = "doses"


def gist(response: Any) -> tuple[int, Any]:
    """What must be equal in the answers of both services: the status, and the problem if it is one."""
    content = response.json() if response.status_code >= 400 else {}
    return response.status_code, {**content, "instance": None, "request_id": None}


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.filterwarnings("ignore")  # of the tool's own dependencies
def test_every_answer_is_described(
    url: str, slow_url: str, path: str, method: str, mode: GenerationMode
):
    operation = SCHEMA[path][method]
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
        if path in FAST:
            other = case.call(base_url=slow_url)
            case.validate_response(other, checks=CHECKS)
            assert gist(response) == gist(other)

    # Some parameters are any text at all: nothing is wrong for them.
    with suppress(Unsatisfiable) if is_negative else nullcontext():
        check()
