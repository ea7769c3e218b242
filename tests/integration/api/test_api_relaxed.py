"""Relaxed experiments: answered at once, written a moment later."""

import asyncio
from typing import Any

import pytest

from service.errors import RequestConflict, StorageUnavailable
from service.records import Status
from tests.support.api import CONTEXT, DOSES, Api, running_api
from tests.support.waiting import eventually

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
    assert await quick.last_offset("quick") == 1
    again = await select(quick, request_id="r-1")
    assert again.json() == first.json()
    other = await select(quick, request_id="r-1", source={"context": [0, 0, 0, 0]})
    assert other.status_code == 409


async def test_after_a_failure_the_log_is_waited_for(quick: Api):
    group = quick.services.event_log._group
    group._failures = 1
    await select(quick)
    assert await quick.last_offset("quick") == 1
    assert group.can_submit_later(1)  # it could be written, so the next one need not wait


class Outage:
    """A database that cannot be written until it is back."""

    def __init__(self, api: Api) -> None:
        self._group = api.services.event_log._group
        self._kept = self._group._commit
        self._group._commit = self._fail

    async def _fail(self, calls: Any) -> Any:
        raise StorageUnavailable

    def end(self) -> None:
        self._group._commit = self._kept


async def test_what_was_answered_before_an_outage_is_written_after_it(
    quick: Api, caplog: pytest.LogCaptureFixture
):
    await select(quick, request_id="first")  # the policy is loaded
    outage = Outage(quick)
    answered = (await select(quick)).json()["source"]["decision_id"]
    unwritten = "daband_unwritten_decisions 1.0"
    await eventually(lambda: unwritten in quick.services.metrics.exposition().decode())
    await eventually(lambda: not quick.services.event_log.can_append_later(1))
    assert (await select(quick)).status_code == 503  # now it waits, and learns of it
    outage.end()
    await eventually(lambda: quick.services.event_log.unwritten_count == 0)
    assert await quick.services.event_log.find_decision(answered) is not None
    shown = quick.services.metrics.exposition().decode()
    assert "daband_unwritten_decisions 0.0" in shown
    assert "decisions_lost_total{" not in shown.replace('{experiment="quick"} 0.0', "")
    assert "decisions_lost" not in [getattr(record, "action", None) for record in caplog.records]
    assert (await select(quick)).status_code == 200


async def test_what_is_refused_after_it_was_answered_is_lost_and_counted(
    quick: Api, caplog: pytest.LogCaptureFixture
):
    await select(quick, request_id="first")
    group = quick.services.event_log._group

    async def refuse(calls: Any) -> Any:
        return [RequestConflict() for _ in calls]

    group._commit = refuse
    assert (await select(quick)).status_code == 200
    lost = 'daband_decisions_lost_total{experiment="quick"} 1.0'
    await eventually(lambda: lost in quick.services.metrics.exposition().decode())
    assert "decisions_lost" in [getattr(record, "action", None) for record in caplog.records]


async def test_a_deleted_experiment_loses_its_decisions_on_purpose(
    quick: Api, caplog: pytest.LogCaptureFixture
):
    await select(quick, request_id="first")
    group, may_write = quick.services.event_log._group, asyncio.Event()
    commit = group._commit

    async def wait(calls: Any) -> Any:
        await may_write.wait()
        return await commit(calls)

    group._commit = wait
    assert (await select(quick)).status_code == 200
    await quick.services.experiments.delete("quick")
    may_write.set()
    await eventually(lambda: group.unwritten_count == 0)
    assert "decisions_lost" not in [getattr(record, "action", None) for record in caplog.records]


async def test_from_the_bound_on_decisions_wait_until_they_are_written(database_url: str):
    async with running_api(database_url, relaxed_bound=3) as api:
        await api.http.post("/experiments", json=QUICK)
        await select(api, request_id="first")
        group, may_write = api.services.event_log._group, asyncio.Event()
        commit = group._commit

        async def wait(calls: Any) -> Any:
            await may_write.wait()
            return await commit(calls)

        group._commit = wait
        for _ in range(3):
            assert (await select(api)).status_code == 200
        assert group.unwritten_count == 3
        waiting = asyncio.create_task(select(api))
        await eventually(lambda: group.waiting_count > 0 or waiting.done())
        assert (waiting.done(), group.unwritten_count) == (False, 3)
        may_write.set()
        assert (await waiting).status_code == 200
        await eventually(lambda: group.unwritten_count == 0)


async def test_a_paused_experiment_takes_no_decisions(quick: Api):
    await select(quick, request_id="first")
    await quick.services.experiments.set_status("quick", Status.PAUSED)
    await quick.services.policies._poll()
    assert (await select(quick)).status_code == 409


async def test_durability_is_one_of_two(api: Api):
    answer = await api.http.post("/experiments", json={**QUICK, "durability": "none"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/durability")
