"""Relaxed experiments: answered at once, written a moment later."""

from typing import Any

import pytest

from service.errors import StorageUnavailable
from service.records import Status
from tests.api_tools import CONTEXT, DOSES, Api
from tests.storage_tools import eventually

QUICK: dict[str, Any] = {**DOSES, "name": "quick", "durability": "relaxed"}


@pytest.fixture
async def quick(api: Api) -> Api:
    answer = await api.http.post("/experiments", json=QUICK)
    assert (answer.status_code, answer.json()["durability"]) == (201, "relaxed")
    return api


async def select(api: Api, **fields: Any) -> Any:
    body = {"experiment": "quick", "source": {"context": CONTEXT}, **fields}
    return await api.http.post("/select", json=body)


async def test_decisions_are_written_soon_as_they_were_answered(quick: Api):
    answers = [(await select(quick)).json() for _ in range(5)]
    ids = [answer["source"]["decision_id"] for answer in answers]

    async def are_stored() -> bool:
        return set(await quick.services.event_log.find_decisions(ids)) == set(ids)

    await eventually(are_stored)
    stored = await quick.services.event_log.find_decisions(ids)
    for answer in answers:
        event = stored[answer["source"]["decision_id"]]
        assert (event.arm, event.request_id) == (answer["source"]["arm"], answer["request_id"])
        replay = await select(quick, request_id=answer["request_id"])
        assert replay.json()["source"] == answer["source"]
        assert replay.headers["idempotent-replayed"] == "true"


async def test_a_reward_that_follows_at_once_finds_its_decision(quick: Api):
    for _ in range(5):
        decision_id = (await select(quick)).json()["source"]["decision_id"]
        assert (await quick.reward(decision_id)).status_code == 201


async def test_a_request_with_an_id_waits_for_the_log(quick: Api):
    first = await select(quick, request_id="r-1")
    assert await quick.head("quick") == 1
    again = await select(quick, request_id="r-1")
    assert again.json() == first.json()
    other = await select(quick, request_id="r-1", source={"context": [0, 0, 0, 0]})
    assert other.status_code == 409


async def test_a_log_that_is_behind_is_waited_for(quick: Api):
    group = quick.services.event_log._group
    group._is_well = False
    await select(quick)
    assert await quick.head("quick") == 1
    assert group.can_lag  # it could be written, so the next one need not wait


async def test_what_cannot_be_written_is_counted(quick: Api, caplog: pytest.LogCaptureFixture):
    await select(quick, request_id="first")  # the policy is loaded
    writer = quick.services.event_log._group

    async def fail(calls: Any) -> Any:
        raise StorageUnavailable

    kept, writer._commit = writer._commit, fail
    assert (await select(quick)).status_code == 200
    lost = 'daband_decisions_lost_total{experiment="quick"} 1.0'
    await eventually(lambda: lost in quick.services.metrics.exposition().decode())
    assert "decisions_lost" in [getattr(record, "action", None) for record in caplog.records]
    assert (await select(quick)).status_code == 503  # now it waits, and learns of it
    writer._commit = kept
    assert (await select(quick)).status_code == 200


async def test_a_paused_experiment_takes_no_decisions(quick: Api):
    await select(quick, request_id="first")
    await quick.services.experiments.set_status("quick", Status.PAUSED)
    await quick.services.policies._poll()
    assert (await select(quick)).status_code == 409


async def test_durability_is_one_of_two(api: Api):
    answer = await api.http.post("/experiments", json={**QUICK, "durability": "none"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/durability")
