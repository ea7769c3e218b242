"""Streams of bytes on real sockets: the service answers alike with and without its fast path.

A failure shows the seed and the bytes of its case.
"""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import uvloop

from service.http.fast_path import Exchange, FastPath, FastRequest
from service.http.protocol import guarded_protocol
from tests.support.api import CONTEXT, DOSES, Api, running_api
from tests.support.http.cases import Case, Draft, cases
from tests.support.http.raw import RawServer, Response, serving
from tests.support.storage import sqlite_url

FEW, MANY = 250, 1000
FOREVER = 3600.0
MAX_BODY_BYTES = 4096
JSON, BYTES = b"Content-Type: application/json", b"Content-Type: application/octet-stream"
VECTOR = np.array(CONTEXT, dtype="<f4").tobytes()
# One eligible arm, so that a decision's id does not decide.
ROUND: dict[str, Any] = {
    "experiment": "doses",
    "source": {"context": CONTEXT},
    "eligible_arms": ["mid"],
}
IDS = frozenset({"decision_id", "request_id", "instance"})
OWN_HEADERS = frozenset({"x-request-id", "connection"})


def posted(path: bytes, body: Any) -> Callable[[], Draft]:
    return lambda: Draft(b"POST", path, json.dumps(body).encode(), JSON)


def binary(query: bytes, body: bytes) -> Callable[[], Draft]:
    return lambda: Draft(b"POST", b"/select?experiment=doses" + query, body, BYTES)


REQUESTS: tuple[Callable[[], Draft], ...] = (
    posted(b"/select", ROUND),
    posted(b"/select", {**ROUND, "request_id": "r-1"}),
    posted(b"/select", {**ROUND, "source": {"context": ["1"]}}),
    posted(b"/select", {**ROUND, "experiment": "nobody"}),
    posted(b"/select/batch", {"experiment": "doses", "rounds": [{}]}),
    posted(b"/target/select", {"experiment": "doses", "context": CONTEXT}),
    posted(b"/reward", {"decision_id": "nobody", "reward": 1.0}),
    posted(b"/reward/batch", {"rewards": [{"decision_id": "nobody", "reward": 1.0}]}),
    binary(b"&eligible_arms=mid", VECTOR),
    binary(b"&eligible_arms=mid&request_id=r-2", VECTOR),
    binary(b"", VECTOR[:-1]),
    binary(b"&domain=nowhere", VECTOR),
    lambda: Draft(b"POST", b"/select", b"{}", b"Content-Type: text/plain"),
    lambda: Draft(b"POST", b"/select", b"{}", JSON, b"X-Request-ID: mine"),
    lambda: Draft(b"POST", b"/nowhere", b"{}", JSON),
    lambda: Draft(b"POST", b"/select", bytes(MAX_BODY_BYTES + 1), JSON),
    lambda: Draft(b"GET", b"/experiments/nobody"),
    lambda: Draft(b"GET", b"/healthz"),
)


def service_request(random: Random) -> Draft:
    return random.choice(REQUESTS)()


class CountedFastPath:
    """The fast path of a service, and how many requests took it."""

    def __init__(self, fast_path: FastPath) -> None:
        self.find = fast_path.find
        self._take = fast_path.take
        self.taken = 0

    def take(self, request: FastRequest, content: bytes, exchange: Exchange) -> None:
        self.taken += 1
        self._take(request, content, exchange)


class Served(NamedTuple):
    """A service on a socket."""

    api: Api
    server: RawServer
    fast_path: Any


@asynccontextmanager
async def served(database: Path, *, has_fast_path: bool) -> AsyncIterator[Served]:
    """A service with the fast path or without it."""
    async with running_api(sqlite_url(database), max_body_bytes=MAX_BODY_BYTES) as api:
        assert (await api.http.post("/experiments", json=DOSES)).status_code == 201
        fast_path: Any = CountedFastPath(api.app.fast_path) if has_fast_path else None
        protocol = guarded_protocol(FOREVER, api.app.shedding.early_refusal, fast_path)
        async with serving(api.app, protocol, {"services": api.services}) as server:
            yield Served(api, server, fast_path)


def normal(response: Response) -> tuple[int, dict[str, str], Any]:
    """A response without what differs from request to request.

    An answer says `connection: close` if the client has half-closed by then, which is a race.
    """
    headers = {name: value for name, value in response.headers.items() if name not in OWN_HEADERS}
    return response.status, headers, without_ids(response.content)


def without_ids(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: without_ids(each) for name, each in content.items() if name not in IDS}
    return [without_ids(each) for each in content] if isinstance(content, list) else content


def decision_ids(responses: list[Response]) -> set[str]:
    found = [each.content for each in responses if each.status == 200]
    return {each["source"]["decision_id"] for each in found if "source" in each}


async def compared(case: Case, fast: Served, slow: Served) -> tuple[set[str], set[str]]:
    """Send a case to both; the ids of the decisions that each answered."""
    ours, theirs = await asyncio.gather(fast.server.answers(case), slow.server.answers(case))
    assert [normal(each) for each in ours] == [normal(each) for each in theirs], str(case)
    return decision_ids(ours), decision_ids(theirs)


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_both_paths_answer_alike(count: int, sqlite_template: Path, tmp_path: Path):
    databases = [tmp_path / name for name in ("fast.db", "slow.db")]
    for each in databases:
        shutil.copy(sqlite_template, each)

    async def main() -> None:
        async with (
            served(databases[0], has_fast_path=True) as fast,
            served(databases[1], has_fast_path=False) as slow,
        ):
            answered = [await compared(each, fast, slow) for each in cases(count, service_request)]
            for each, ids in zip((fast, slow), zip(*answered, strict=True), strict=True):
                assert await each.api.last_offset() == len(set().union(*ids)), (
                    "what is recorded is answered"
                )
            assert fast.fast_path.taken > count / 10

    uvloop.run(main())
