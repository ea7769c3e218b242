"""Pausing, archiving and deleting experiments over HTTP, on SQLite and on Postgres."""

from functools import partial
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from service.storage import erasing, tables
from service.storage.erasing import Erasing
from tests.support.api import CONTEXT, DOSES, OTHER_CONTEXT, TAUGHT, Api, running_api
from tests.support.waiting import eventually

UNKNOWN = "/problems/unknown-experiment"
TRAINING: dict[str, Any] = {"trainer_inside": True, "poll_seconds": 0.02}


async def delete(api: Api, name: str = "doses", **query: str) -> httpx.Response:
    return await api.http.delete(f"/experiments/{name}", params={"confirm": name, **query})


async def set_status(api: Api, status: str, **fields: str) -> httpx.Response:
    return await api.http.patch("/experiments/doses", json={"status": status, **fields})


async def erase_all(api: Api) -> int:
    """Erase what is deleted; the steps that it took."""
    steps, work = 0, Erasing(api.services.database, api.services.bus.forget)
    while await work.step():
        steps += 1
    return steps


async def row_counts(api: Api, experiment_id: str) -> dict[str, int]:
    """What each table holds of an experiment, but for the audit trail."""
    found = {}
    for table in tables.metadata.sorted_tables:
        if "experiment_id" in table.c and table is not tables.audit:
            mine = table.c.experiment_id == experiment_id
            query = sa.select(sa.func.count()).select_from(table).where(mine)
            found[table.name] = await api.services.database.read(partial(_scalar, query))
    return found


async def _scalar(query: sa.Select[Any], connection: AsyncConnection) -> int:
    return int((await connection.execute(query)).scalar_one())


def problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["type"]


async def test_an_archived_experiment_can_be_read_and_takes_nothing(api: Api):
    decision_id = await api.decide(request_id="r-1")
    archived = await set_status(api, "archived", by="ann", reason="the trial is over")
    assert (archived.status_code, archived.json()["status"]) == (200, "archived")
    head = await api.last_offset()
    refused = (409, "/problems/experiment-archived")
    assert problem(await api.select()) == refused
    assert problem(await api.reward(decision_id)) == refused
    contexts = {"experiment": "doses", "contexts": [CONTEXT]}
    stored = await api.http.post("/target/select", json={**contexts, "store": True})
    assert problem(stored) == refused
    opened = await api.http.post("/experiments/doses/phase", json={"phase": "continued"})
    assert problem(opened) == refused
    assert await api.last_offset() == head
    for path in ("", "/state", "/snapshots", "/transfer", "/audit", "/report"):
        assert (await api.http.get(f"/experiments/doses{path}")).status_code == 200
    assert (await api.http.post("/target/select", json=contexts)).status_code == 200
    assert (await set_status(api, "active")).status_code == 200
    assert (await api.reward(decision_id)).status_code == 201


async def test_every_change_is_in_the_audit_trail_with_its_reason(api: Api):
    for status in ("paused", "paused", "archived", "active"):
        await set_status(api, status, by="ann", reason=f"because {status}")
    trail = (await api.http.get("/experiments/doses/audit")).json()["entries"]
    assert [each["what"] for each in trail] == ["paused", "archived", "active"]
    assert trail[0]["offset"] is None
    assert trail[0]["details"] == {"by": "ann", "reason": "because paused"}
    assert (await delete(api, by="bob", reason="a mistake")).status_code == 202
    acts = (await api.http.get("/audit")).json()["entries"]
    assert [each["what"] for each in acts] == ["deleted", "active", "archived", "paused"]
    newest = {name: acts[0][name] for name in ("experiment", "by", "reason", "key_id")}
    assert newest == {
        "experiment": "doses",
        "by": "bob",
        "reason": "a mistake",
        "key_id": None,
    }
    assert len((await api.http.get("/audit?limit=1")).json()["entries"]) == 1


@pytest.mark.parametrize("status", ["deleted", "gone", ""])
async def test_other_statuses_are_refused(api: Api, status: str):
    answer = await set_status(api, status)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "#/status"


@pytest.mark.parametrize("confirm", [None, "", "dose", "DOSES"])
async def test_a_deletion_is_confirmed_by_name(api: Api, confirm: str | None):
    query = {} if confirm is None else {"confirm": confirm}
    answer = await api.http.delete("/experiments/doses", params=query)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "#/confirm"
    assert (await api.http.get("/experiments/doses")).status_code == 200


async def test_a_deleted_experiment_is_unknown_at_once_and_erased_soon(
    api: Api, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(erasing.ROWS_A_STEP, tables.events, 3)
    decision_id = await api.decide()
    for _ in range(6):
        await api.decide(target={"context": OTHER_CONTEXT})
    other_id = (
        await api.http.post(
            "/select", json={"experiment": "offers", "source": {"contexts": {"low": CONTEXT}}}
        )
    ).json()["source"]["decision_id"]
    experiment_id = (await api.services.experiments.get("doses")).experiment_id
    deleted = await delete(api)
    assert deleted.json()["experiment_id"] == experiment_id
    for answer in (
        await api.http.get("/experiments/doses"),
        await api.http.get("/experiments/doses/state"),
        await api.select(),
        await set_status(api, "active"),
        await delete(api),
    ):
        assert problem(answer) == (404, UNKNOWN)
    assert problem(await api.reward(decision_id)) == (404, "/problems/unknown-decision")
    listed = (await api.http.get("/experiments")).json()["experiments"]
    assert [each["name"] for each in listed] == ["offers"]
    assert (await row_counts(api, experiment_id))["events"] == 13
    assert await erase_all(api) > 4, "a part at a time"
    assert set((await row_counts(api, experiment_id)).values()) == {0}
    assert (await api.http.get("/audit")).json()["entries"][0]["what"] == "erased"
    assert problem(await api.reward(decision_id)) == (404, "/problems/unknown-decision")
    assert (await api.reward(other_id)).status_code == 201


async def test_the_name_is_free_again_and_the_id_is_not(api: Api):
    first = (await api.services.experiments.get("doses")).experiment_id
    await api.decide(request_id="r-1")
    await delete(api)
    assert (await api.http.post("/experiments", json=DOSES)).status_code == 201
    second = (await api.services.experiments.get("doses")).experiment_id
    assert second != first
    answer = await api.select("r-1")
    assert answer.status_code == 200
    assert "idempotent-replayed" not in answer.headers
    assert await api.last_offset() == 1
    await erase_all(api)
    assert await api.last_offset() == 1
    assert (await api.select()).status_code == 200


async def test_a_cached_snapshot_goes_at_once_and_one_published_after_the_deletion_is_erased(
    api: Api,
):
    bus, experiment = api.services.bus, await api.services.experiments.get("doses")
    await bus.publish(experiment, 1, 0, b"learned")
    await delete(api)
    assert await bus.latest(experiment) is None
    await bus.publish(experiment, 1, 0, b"learned")
    assert await bus.latest(experiment) is not None
    await erase_all(api)
    assert await bus.latest(experiment) is None


async def test_a_trainer_lets_a_deleted_experiment_go(database_url: str):
    async with running_api(database_url, **TRAINING) as api:
        assert (await api.http.post("/experiments", json=TAUGHT)).status_code == 201
        await api.reward(await api.decide())
        experiment = await api.services.experiments.get("doses")

        async def is_folded() -> bool:
            return bool(await api.services.snapshots.list(experiment.experiment_id))

        await eventually(is_folded)
        await delete(api)

        async def is_erased() -> bool:
            return set((await row_counts(api, experiment.experiment_id)).values()) == {0}

        await eventually(is_erased)
        assert (await api.http.post("/experiments", json=TAUGHT)).status_code == 201
        await api.reward(await api.decide())
        again = await api.services.experiments.get("doses")

        async def is_learned() -> bool:
            return bool(await api.services.snapshots.list(again.experiment_id))

        await eventually(is_learned)
        assert (await api.http.get("/readyz")).status_code == 200
        assert await api.services.failures.names() == []
