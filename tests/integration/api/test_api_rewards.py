"""Rewards over HTTP, on SQLite and on Postgres."""

import asyncio
from typing import Any

import msgspec
import pytest

from service.bus.messages import Topic
from service.records import phase_event
from tests.support.api import CONTEXT, Api, running_api
from tests.support.waiting import PATIENCE_SECONDS


async def test_a_reward_is_created_once(api: Api):
    decision_id = await api.decide()
    first, second = await api.reward(decision_id), await api.reward(decision_id)
    expected = {"decision_id": decision_id, "offset": 2}
    assert (first.status_code, first.json()) == (201, {**expected, "status": "created"})
    assert (second.status_code, second.json()) == (200, {**expected, "status": "already_recorded"})


async def test_a_second_reward_with_another_value_is_refused(api: Api):
    decision_id = await api.decide()
    await api.reward(decision_id, 1.0)
    answer = await api.reward(decision_id, 0.5)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/reward-conflict")
    assert await api.last_offset() == 2


async def test_twenty_equal_rewards_at_once_create_one(api: Api):
    decision_id = await api.decide()
    answers = await asyncio.gather(*(api.reward(decision_id) for _ in range(20)))
    assert sorted(answer.status_code for answer in answers) == [200] * 19 + [201]


async def test_a_reward_of_an_unknown_decision_is_not_found(api: Api):
    answer = await api.reward("nobody's")
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-decision")


async def test_a_target_reward_is_refused_and_stored_nowhere(api: Api):
    body = {"experiment": "doses", "target": {"context": CONTEXT}}
    decision = (await api.http.post("/select", json=body)).json()["target"]
    answer = await api.reward(decision["decision_id"], 0.123456)
    assert (answer.status_code, answer.json()["type"]) == (403, "/problems/target-reward-forbidden")
    assert "0.123456" not in answer.text
    assert await api.last_offset() == 1


async def test_a_target_reward_is_taken_once_the_phase_allows_it(api: Api):
    body = {"experiment": "doses", "target": {"context": CONTEXT}}
    decision = (await api.http.post("/select", json=body)).json()["target"]
    experiment = await api.services.experiments.get("doses")
    await api.services.event_log.append([phase_event(experiment.experiment_id)])
    assert (await api.reward(decision["decision_id"])).status_code == 201


@pytest.mark.parametrize(
    "value", ["1", True, None, -0.1, 1.1, "NaN", [1], 10**30, {"reward": 1}], ids=str
)
async def test_a_reward_is_a_number_between_0_and_1(api: Api, value: Any):
    decision_id = await api.decide()
    answer = await api.reward(decision_id, value)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/reward")
    assert await api.last_offset() == 1


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999", "-1e999", "1" * 100_000])
async def test_what_json_has_no_number_for_is_refused(api: Api, text: str):
    decision_id = await api.decide()
    content = f'{{"decision_id": "{decision_id}", "reward": {text}}}'
    headers = {"Content-Type": "application/json"}
    assert (await api.http.post("/reward", content=content, headers=headers)).status_code == 422


async def test_a_reward_wakes_the_trainers_of_its_experiment(api: Api):
    ear = api.services.bus.listen(Topic.REWARD)
    decision_id = await api.decide()
    await api.reward(decision_id)
    assert await ear.wait(PATIENCE_SECONDS) == {"doses"}
    await api.reward(decision_id)
    assert await ear.wait(0) == set()


async def test_each_reward_of_a_batch_is_judged_by_itself(api: Api):
    first, second = await api.decide(), await api.decide()
    await api.reward(second, 0.0)
    rewards = [
        {"decision_id": decision_id, "reward": value}
        for decision_id, value in ((first, 1.0), (first, 1.0), (second, 1.0), ("nobody's", 1.0))
    ]
    answer = await api.http.post("/reward/batch", json={"rewards": rewards})
    outcomes = answer.json()["rewards"]
    assert answer.status_code == 200
    assert [each["status"] for each in outcomes] == [
        "created",
        "already_recorded",
        "refused",
        "refused",
    ]
    slugs = [each["problem"]["type"].rpartition("/")[2] for each in outcomes[2:]]
    assert slugs == ["reward-conflict", "unknown-decision"]


async def test_a_bad_value_of_a_batch_is_refused_alone(api: Api):
    first, second = await api.decide(), await api.decide()
    rewards = [
        {"decision_id": decision_id, "reward": value}
        for decision_id, value in ((first, 2), (first, 1.0), (second, None), (second, "a"))
    ]
    for answer in (
        await api.http.post("/reward/batch", json={"rewards": rewards}),
        await api.http.post(
            "/reward/batch",
            content=msgspec.msgpack.encode({"rewards": rewards}),
            headers={"content-type": "application/msgpack"},
        ),
    ):
        outcomes = answer.json()["rewards"]
        recorded = outcomes.pop(1)
        assert (recorded["decision_id"], recorded["status"]) in (
            (first, "created"),
            (first, "already_recorded"),
        )
        assert {each["status"] for each in outcomes} == {"refused"}
        pointers = [each["problem"]["errors"][0]["pointer"] for each in outcomes]
        assert pointers == [f"#/rewards/{index}/reward" for index in (0, 2, 3)]
    assert await api.last_offset() == 3


async def test_a_batch_without_an_id_is_refused_whole(api: Api):
    rewards = [{"decision_id": await api.decide(), "reward": 1.0}, {"reward": 1.0}]
    answer = await api.http.post("/reward/batch", json={"rewards": rewards})
    assert answer.json()["errors"][0]["pointer"] == "#/rewards/1"
    assert await api.last_offset() == 1


async def test_another_process_finds_the_decision_in_the_database(api: Api, database_url: str):
    decision_id = await api.decide()
    async with running_api(database_url) as other:
        assert (await other.reward(decision_id)).status_code == 201
    assert (await api.reward(decision_id)).status_code == 200
