"""Past rounds over HTTP: whole or not at all, never twice, and learned from."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from daband_client import AsyncClient, ProblemError
from service.errors import StorageUnavailable
from service.evaluating.candidates import CandidateSpec
from service.evaluating.experiment_log import is_imported
from service.evaluating.request import EvaluationRequest
from service.evaluating.running import EvaluationStores, evaluated_here, planned
from service.evaluating.unfinished import ABANDONED, UnfinishedHistories
from service.records import EventKind, utc_now
from service.storage import tables
from service.storage.erasing import Erasing
from service.storage.events.history_parts import HistoryPart, HistoryParts
from service.storage.events.log import EventLog
from tests.support.api import DOSES, Api, asgi

CSV = {"content-type": "text/csv"}
WHERE = "/experiments/mice/history"
QUERY: dict[str, Any] = {"arm": "dose", "reward": "gain", "id": "mouse"}
MICE: dict[str, Any] = {
    **DOSES,
    "name": "mice",
    "context": {
        "kind": "table",
        "columns": [
            {"name": "age", "type": "numeric", "missing": True, "fill": 3.0},
            {"name": "strain", "type": "categorical", "values": ["B6", "BALB"]},
        ],
    },
    "reward_range": [-10.0, 30.0],
}
ARMS = ("low", "mid", "high")


def rows(count: int, **changes: str) -> str:
    lines = ["mouse,age,strain,dose,gain"]
    for number in range(count):
        cells = {
            "mouse": f"m{number}",
            "age": str(number % 7),
            "strain": "B6" if number % 2 else "BALB",
            "dose": ARMS[number % 3],
            "gain": str(number % 3 * 20 - 10),
        }
        if number == count - 1:
            cells |= changes
        lines.append(",".join(cells.values()))
    return "\n".join(lines) + "\n"


@pytest.fixture
async def mice(api: Api) -> Api:
    answer = await api.http.post("/experiments", json=MICE)
    assert answer.status_code == 201, answer.text
    assert answer.json()["reward_range"] == [-10.0, 30.0]
    return api


async def sent(api: Api, content: str | bytes, **query: Any) -> httpx.Response:
    return await api.http.post(WHERE, content=content, params={**QUERY, **query}, headers=CSV)


async def kinds(api: Api) -> list[str]:
    experiment = await api.services.experiments.get("mice")
    query = (
        sa.select(tables.events.c.kind)
        .where(tables.events.c.experiment_id == experiment.experiment_id)
        .order_by(tables.events.c.event_offset)
    )
    found = await api.services.database.read(lambda connection: connection.execute(query))
    return [each.kind for each in found]


async def test_a_history_is_imported_once(mice: Api):
    first = await sent(mice, rows(3))
    assert first.status_code == 201, first.text
    again = await sent(mice, rows(3))
    assert again.status_code == 200
    assert first.json() | {"status": "already_recorded"} == again.json()
    assert (first.json()["rows"], first.json()["rewards"]) == (3, 3)
    assert await kinds(mice) == ["history", *["decision", "reward"] * 3]
    assert (await sent(mice, rows(4))).status_code == 201
    assert len(await kinds(mice)) == 7 + 9


async def test_rewards_are_scaled_and_what_is_known_is_kept(mice: Api):
    await sent(mice, rows(3))
    experiment = await mice.services.experiments.get("mice")
    events = await mice.services.event_log.read(experiment.experiment_id, 0, 10)
    assert [each.reward for each in events if each.reward is not None] == [0.0, 0.5, 1.0]
    payload = json.loads(events[1].payload)
    assert (payload["row_id"], payload["probabilities"]) == ("m0", [])
    assert await is_imported(experiment, mice.services.event_log)
    (entry,) = (await mice.http.get("/experiments/mice/audit")).json()["entries"]
    assert (entry["what"], entry["details"]["rows"]) == ("history_imported", 3)


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    (rows(600, gain="31"), {}, "#/599/gain", "row 600: Column `gain` must lie between -10 and 30"),
    (rows(2, dose="secret"), {}, "#/1/dose", "row 2: Column `dose` names an arm that is not"),
    (rows(2, age="old"), {}, "#/1/age", "row 2: Column `age` takes a finite number"),
    (rows(2), {"id": "tail"}, "#/tail", "There is no column `tail`"),
    (rows(2), {"arm": "mouse", "id": "dose"}, "#/0/mouse", "row 1: Column `mouse` names an arm"),
    (rows(2) + "m9,1\n", {}, "#", "2 cells where 5 belong"),
    ("", {}, "#", "The table has no header line"),
    ("mouse,age,strain,dose,gain\n", {}, "#", "The table has no rows"),
    (rows(2), {"encoding": "utf-99"}, "#/encoding", "Unknown encoding"),
]


@pytest.mark.parametrize(("content", "query", "pointer", "detail"), BAD)
async def test_a_bad_table_leaves_nothing_behind(
    mice: Api, content: str, query: dict[str, Any], pointer: str, detail: str
):
    answer = await sent(mice, content, **query)
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["pointer"] == pointer
    assert detail in error["detail"]
    assert "secret" not in answer.text
    assert await kinds(mice) == []


class BrokenLog(EventLog):
    """Fails from the second append of rows on: the acceptance and one part get through."""

    appends = 0

    async def append(self, *args: Any, **options: Any) -> Any:
        BrokenLog.appends += 1
        if BrokenLog.appends > 2:
            raise StorageUnavailable
        return await super().append(*args, **options)


@pytest.fixture
async def interrupted(mice: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Storage failed in the midst of an import: 256 of 700 rows are in the log."""
    log = mice.services.event_log
    monkeypatch.setattr(BrokenLog, "appends", 0)
    monkeypatch.setattr(log, "__class__", BrokenLog)
    assert (await sent(mice, rows(700))).status_code == 503
    monkeypatch.setattr(log, "__class__", EventLog)
    assert len(await kinds(mice)) == 1 + 2 * 256
    return mice


def unfinished(api: Api, **options: Any) -> UnfinishedHistories:
    services = api.services
    parts = HistoryParts(services.database)
    return UnfinishedHistories(
        parts, services.experiments, services.event_log, services.bus, **options
    )


async def test_an_import_that_broke_off_is_finished_by_the_service(interrupted: Api):
    await interrupted.http.patch("/experiments/mice", json={"status": "paused"})
    finishing = unfinished(interrupted)
    await finishing.step()  # it may be under way: nothing is done at the first look
    assert len(await kinds(interrupted)) == 1 + 2 * 256
    await finishing.step()
    assert await kinds(interrupted) == ["history", *["decision", "reward"] * 700]
    assert await HistoryParts(interrupted.services.database).pending() == []
    assert (await sent(interrupted, rows(700))).json()["status"] == "already_recorded"
    experiment = await interrupted.services.experiments.get("mice")
    page = await interrupted.services.event_log.read(experiment.experiment_id, 0, 2000)
    ids = [json.loads(each.payload)["row_id"] for each in page if each.kind is EventKind.DECISION]
    assert ids == [f"m{number}" for number in range(700)]


async def test_an_import_that_broke_off_is_finished_by_the_same_file(interrupted: Api):
    resumed = await sent(interrupted, rows(700))
    assert (resumed.status_code, resumed.json()["status"]) == (201, "created")
    assert await kinds(interrupted) == ["history", *["decision", "reward"] * 700]


async def test_what_fails_before_it_is_accepted_leaves_the_log_as_it_was(
    mice: Api, monkeypatch: pytest.MonkeyPatch
):
    stored: list[int] = []

    async def store(self: HistoryParts, experiment_id: str, sha256: str, part: HistoryPart) -> None:
        if stored:
            raise StorageUnavailable
        stored.append(part.first_row)
        await kept(self, experiment_id, sha256, part)

    kept = HistoryParts.store
    monkeypatch.setattr(HistoryParts, "store", store)
    assert (await sent(mice, rows(700))).status_code == 503
    monkeypatch.setattr(HistoryParts, "store", kept)
    later = unfinished(mice, now=lambda: utc_now() + 2 * ABANDONED)
    soon = unfinished(mice)
    for _ in range(2):
        await soon.step()
    (pending,) = await HistoryParts(mice.services.database).pending()
    assert (pending.next_row, await kinds(mice)) == (0, [])
    for _ in range(2):
        await later.step()
    assert await HistoryParts(mice.services.database).pending() == []
    assert (await sent(mice, rows(700))).status_code == 201
    assert len(await kinds(mice)) == 1 + 2 * 700


async def test_parts_of_a_deleted_experiment_are_erased_and_not_finished(interrupted: Api):
    finishing = unfinished(interrupted)
    await finishing.step()
    await interrupted.http.delete("/experiments/mice", params={"confirm": "mice"})
    await finishing.step()
    erasing = Erasing(interrupted.services.database, interrupted.services.bus.forget)
    while await erasing.step():
        pass
    assert await HistoryParts(interrupted.services.database).pending() == []


async def test_an_experiment_that_takes_no_decisions_takes_no_history(mice: Api):
    await mice.http.patch("/experiments/mice", json={"status": "paused"})
    assert (await sent(mice, rows(2))).json()["type"].endswith("experiment-paused")
    await mice.http.patch("/experiments/mice", json={"status": "archived"})
    assert (await sent(mice, rows(2))).json()["type"].endswith("experiment-archived")
    assert await kinds(mice) == []


async def test_contexts_of_each_arm_have_no_history(api: Api):
    answer = await api.http.post(
        "/experiments/offers/history", content=rows(1), params=QUERY, headers=CSV
    )
    assert answer.status_code == 422
    assert "all arms share" in answer.text


async def test_a_vector_takes_the_columns_in_their_order(api: Api):
    text = "a,b,c,d,dose,gain\n1,2,3,4,low,1\n"
    answer = await api.http.post(
        "/experiments/doses/history",
        content=text,
        params={"arm": "dose", "reward": "gain"},
        headers=CSV,
    )
    assert answer.status_code == 201, answer.text


async def evaluated(api: Api) -> dict[str, Any]:
    services = api.services
    stores = EvaluationStores(services.experiments, services.event_log, services.snapshots)
    experiment = await services.experiments.get("mice")
    request = EvaluationRequest(experiment="mice", candidates=(CandidateSpec(kind="uniform"),))
    return await evaluated_here(await planned(stores, experiment, request), services.event_log)


async def test_offline_evaluation_says_that_it_cannot_know(mice: Api):
    await sent(mice, rows(5))
    with pytest.raises(ValueError, match="not identifiable: 5 of 5 rounds have no propensity"):
        await evaluated(mice)


async def test_with_propensities_there_is_an_evaluation(mice: Api):
    text = "".join(
        f"{line},{'p' if number == 0 else 0.5}\n"
        for number, line in enumerate(rows(8).splitlines())
    )
    answer = await sent(mice, text, propensity="p")
    assert answer.json()["propensities"] == 8
    found = await evaluated(mice)
    assert found["rounds"] == 8
    assert found["max_weight"] is None  # foreign propensities have no known floor
    assert tuple(found["reward_range"]) == (-10.0, 30.0)


async def test_the_client_imports_files_and_bytes(mice: Api, tmp_path: Path):
    path = tmp_path / "mice.csv"
    path.write_text(rows(3))
    columns: dict[str, Any] = {"arm": "dose", "reward": "gain", "id": "mouse"}
    transport = httpx.ASGITransport(asgi(mice.app, mice.services))
    async with AsyncClient("http://test", transport=transport) as client:
        assert (await client.import_history("mice", path, **columns)).status == "created"
        lines = b"age,strain,extra,dose,gain,mouse\n1,B6,x,low,0,m\n"
        found = await client.import_history(
            "mice", lines, **columns, ignore=["extra"], media="text/csv", csv={"separator": ","}
        )
        assert (found.rows, found.status) == (1, "created")
        with pytest.raises(ProblemError, match="no column `what`"):
            await client.import_history("mice", path, arm="what", reward="gain")
        with pytest.raises(ValueError, match="bytes need their media type"):
            await client.import_history("mice", b"", **columns)
        with pytest.raises(ValueError, match="ends in one of"):
            await client.import_history("mice", tmp_path / "mice.xlsx", **columns)


async def test_a_range_of_rewards_is_two_numbers_in_order(api: Api):
    for wrong in ([1.0, 1.0], [2.0, 1.0], [1.0]):
        answer = await api.http.post("/experiments", json={**MICE, "reward_range": wrong})
        assert answer.status_code == 422
        assert "reward_range" in answer.json()["errors"][0]["pointer"]
