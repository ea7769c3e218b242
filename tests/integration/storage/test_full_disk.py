"""A full disk: refused with 503, nothing half done, not ready, and well again once there is room."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from itertools import count

import pytest

from service.records import StoredEvent
from tests.support.api import CONTEXT, DOSES, Api, running_api
from tests.support.processes.servers import PostgresServer, running_server
from tests.support.processes.small_disk import SmallDisk, small_disk
from tests.support.storage import migrated, sqlite_url
from tests.support.waiting import eventually

MEBIBYTE = 1 << 20
SIZES = {"sqlite": 8 * MEBIBYTE, "postgres": 96 * MEBIBYTE}


@pytest.fixture(params=SIZES)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def disk(kind: str) -> Iterator[SmallDisk]:
    with small_disk(SIZES[kind]) as mounted:
        yield mounted


@pytest.fixture
def url(disk: SmallDisk, kind: str) -> Iterator[str]:
    """A database whose files are on the small disk."""
    if kind == "sqlite":
        yield sqlite_url(disk.folder / "daband.db")
        return
    with running_server(PostgresServer(disk.folder)) as server:
        asyncio.run(migrated(server.url()))
        yield server.url()


@pytest.fixture
async def api(url: str) -> AsyncIterator[Api]:
    async with running_api(url) as running:
        await running.http.post("/experiments", json=DOSES)
        yield running


async def is_selected(api: Api, request_id: str) -> bool:
    """Whether a round of both domains was decided; the only other answer is 503."""
    sides = {"source": {"context": CONTEXT}, "target": {"context": CONTEXT}}
    answer = await api.select(request_id, **sides)
    if answer.status_code == 200:
        return True
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["type"] == "/problems/storage-unavailable"
    return False


async def is_ready(api: Api) -> bool:
    return (await api.http.get("/readyz")).is_success


async def is_unready(api: Api) -> bool:
    return not await is_ready(api)


async def logged(api: Api) -> list[StoredEvent]:
    experiment = await api.services.experiments.get("doses")
    return await api.services.event_log.read(experiment.experiment_id, after=0, limit=100_000)


async def test_a_full_disk_is_refused_noticed_and_survived(api: Api, disk: SmallDisk):
    assert await is_ready(api)
    disk.fill()
    acknowledged: list[str] = []
    for number in count():  # what is allocated already may take some more
        if not await is_selected(api, f"r-{number}"):
            break
        acknowledged.append(f"r-{number}")
    refused = f"r-{len(acknowledged)}"
    await eventually(lambda: is_unready(api))
    assert (await api.http.get("/healthz")).is_success
    assert (await api.http.get("/experiments/doses")).is_success  # what is there can be read
    assert api.services.readiness.dead_task is None
    stored = await logged(api)
    assert {event.request_id for event in stored} == set(acknowledged)
    disk.free()
    await eventually(lambda: is_selected(api, refused))
    await eventually(lambda: is_ready(api))
    stored = await logged(api)
    assert [event.offset for event in stored] == list(range(1, len(stored) + 1))
    sides = Counter(event.request_id for event in stored)
    assert sides == dict.fromkeys([*acknowledged, refused], 2)  # both sides of a round, or none
