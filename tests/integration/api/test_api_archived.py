"""A log of which most rounds are archived, over HTTP: read as before, and written to as before."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from service.errors import StorageUnavailable
from service.evaluating.history import HistoryImport
from service.evaluating.unfinished import UnfinishedHistories
from service.storage.archive.archive import Archive
from service.storage.archive.next_rounds import ArchivingOptions
from service.storage.archive.segment_file import read_segment
from service.storage.events.history_parts import HistoryParts
from tests.support.api import CONTEXT, DOSES, OTHER_CONTEXT, Api, running_api
from tests.support.archives import archive

ROUNDS = 12
FILES = ArchivingOptions(segment_events=64, pause_seconds=0.0)
SIDES = {"source": {"context": CONTEXT}, "target": {"context": OTHER_CONTEXT}}
READ = (
    *("log", "log?domain=target", "log?rewarded=true&limit=3", "log/export"),
    *("log/export?rewarded=true", "learning", "learning?domain=target&points=3"),
)
COLUMNS = {"arm": "arm", "reward": "reward"}
CSV = {"Content-Type": "text/csv"}


@pytest.fixture
async def api(database_url: str, tmp_path: Path) -> AsyncIterator[Api]:
    read_segment.cache_clear()
    async with running_api(database_url, archive_dir=str(tmp_path / "archive")) as running:
        created = await running.http.post("/experiments", json=DOSES)
        assert created.status_code == 201, created.text
        yield running


async def archived(api: Api, kept: int = 7) -> int:
    """Archive all but the newest events; returns up to which offset."""
    experiment = await api.services.experiments.get("doses")
    await archive(api.services.database, experiment, kept, FILES)
    return await Archive(api.services.database).reach(experiment.experiment_id)


async def got(api: Api, place: str) -> str:
    answer = await api.http.get(f"/experiments/doses/{place}")
    assert answer.status_code == 200, answer.text
    return answer.text


async def test_what_is_read_and_repeated_is_as_before(api: Api):
    selected: list[dict[str, Any]] = []
    for number in range(ROUNDS):
        selected.append((await api.select(f"r-{number}", **SIDES)).json())
        if number % 2:
            await api.reward(selected[number - 1]["source"]["decision_id"], 0.5)
    ids = [each[domain]["decision_id"] for each in selected for domain in SIDES]
    places = (*READ, *(f"decisions/{each}" for each in ids))
    before = [await got(api, place) for place in places]
    assert await archived(api) > ROUNDS
    assert [await got(api, place) for place in places] == before
    head = await api.last_offset()
    again = [(await api.select(f"r-{number}", **SIDES)).json() for number in range(ROUNDS)]
    assert [each["source"] for each in again] == [each["source"] for each in selected]
    assert [each["target"] for each in again] == [each["target"] for each in selected]
    assert (await api.reward(ids[0], 0.5)).status_code == 200
    late = await api.reward(ids[2])
    assert (late.status_code, late.json()["type"]) == (409, "/problems/decision-archived")
    assert await api.last_offset() == head


def table(count: int) -> str:
    lines = [f"{number},2,3,4,{DOSES['arms'][number % 3]},0.5" for number in range(count)]
    return "\n".join(["a,b,c,d,arm,reward", *lines, ""])


async def sent(api: Api, count: int) -> tuple[int, str]:
    answer = await api.http.post(
        "/experiments/doses/history", content=table(count), params=COLUMNS, headers=CSV
    )
    return answer.status_code, answer.json().get("status")


@pytest.fixture
async def broken_off(api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """The first 256 of 300 past rounds are in the log, mostly archived; their part is still there."""

    async def fails(*arguments: object) -> None:
        raise StorageUnavailable

    with monkeypatch.context() as patched:
        patched.setattr(HistoryParts, "delete", fails)
        assert (await sent(api, 300))[0] == 503
    assert await archived(api, kept=20) > 256
    return api


async def digest_of(api: Api) -> str:
    (pending,) = await HistoryParts(api.services.database).pending()
    assert pending.next_row == 0
    return pending.sha256


async def ids(api: Api) -> list[str]:
    """The decisions of the log, in order."""
    lines = (await got(api, "log/export")).splitlines()[1:]
    return [line.split('"decision_id":"')[1].split('"')[0].split(":")[-1] for line in lines]


async def test_a_history_whose_rounds_were_archived_meanwhile_is_finished(broken_off: Api):
    services, digest = broken_off.services, await digest_of(broken_off)
    parts = HistoryParts(services.database)
    experiment = await services.experiments.get("doses")
    history = HistoryImport(services.event_log, parts, experiment)
    assert (await history.is_accepted(digest), await history.done(digest, 300)) == (True, 256)
    finishing = UnfinishedHistories(parts, services.experiments, services.event_log, services.bus)
    for _ in range(2):
        await finishing.step()
    assert (await parts.pending(), await history.done(digest, 300)) == ([], 300)
    assert await ids(broken_off) == [str(number) for number in range(1, 301)]
    await archived(broken_off)
    assert await sent(broken_off, 300) == (200, "already_recorded")


async def test_it_waits_while_a_file_is_missing(broken_off: Api, tmp_path: Path):
    services = broken_off.services
    experiment = await services.experiments.get("doses")
    first, *_ = await Archive(services.database).segments(experiment.experiment_id)
    file = tmp_path / "archive" / first.place
    content = file.read_bytes()
    file.unlink()
    read_segment.cache_clear()
    parts, head = HistoryParts(services.database), await broken_off.last_offset()
    finishing = UnfinishedHistories(parts, services.experiments, services.event_log, services.bus)
    for _ in range(3):
        await finishing.step()
    assert await broken_off.last_offset() == head
    file.write_bytes(content)
    await finishing.step()
    assert await ids(broken_off) == [str(number) for number in range(1, 301)]


async def test_a_damaged_file_is_refused_before_the_export_begins(api: Api, tmp_path: Path):
    for number in range(ROUNDS):
        await api.select(f"r-{number}", **SIDES)
    await archived(api)
    whole = await got(api, "log/export")
    place = next((tmp_path / "archive").rglob("*.parquet"))
    content = place.read_bytes()
    middle = len(content) // 2
    place.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    read_segment.cache_clear()
    answer = await api.http.get("/experiments/doses/log/export")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/damaged-archive")
    assert (await api.http.get("/console/experiments/doses/log/export")).status_code == 409
    place.write_bytes(content)
    assert await got(api, "log/export") == whole
