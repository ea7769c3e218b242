"""The phase over HTTP, on SQLite and on Postgres: closed, opened once, raced."""

import asyncio
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from service.storage.tables import metadata
from tests.support.api import CONTEXT, Api

CANARY = 0.8414709848078965


async def open_target(api: Api, **fields: Any) -> httpx.Response:
    return await api.http.post("/experiments/doses/phase", json={"phase": "continued", **fields})


async def target_decision(api: Api) -> str:
    body = {"experiment": "doses", "target": {"context": CONTEXT}}
    return str((await api.http.post("/select", json=body)).json()["target"]["decision_id"])


async def stored_values(api: Api) -> list[Any]:
    """Every value of every table."""

    async def read(connection: Any) -> list[Any]:
        found: list[Any] = []
        for table in metadata.tables.values():
            for row in await connection.execute(sa.select(table)):
                found += row
        return found

    return await api.services.database.read(read)


async def test_the_phase_is_opened_once_and_recorded(api: Api):
    first, again = await open_target(api), await open_target(api)
    expected = {"experiment": "doses", "phase": "continued", "best_reward": 1.0, "offset": 1}
    assert (first.status_code, first.json()) == (200, {**expected, "status": "created"})
    assert (again.status_code, again.json()) == (200, {**expected, "status": "already_recorded"})
    assert (await api.http.get("/experiments/doses")).json()["phase"] == "continued"


async def test_there_is_no_way_back(api: Api):
    for _ in range(2):
        answer = await api.http.post("/experiments/doses/phase", json={"phase": "zero_shot"})
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/phase-conflict")
        await open_target(api)
    assert await api.last_offset() == 1


async def test_the_best_reward_is_declared_once(api: Api):
    assert (await open_target(api, best_reward=0.9)).status_code == 200
    assert (await open_target(api, best_reward=0.8)).status_code == 409
    assert (await open_target(api, best_reward=0.9)).json()["status"] == "already_recorded"


@pytest.mark.parametrize("body", [{"phase": "open"}, {"phase": "continued", "best_reward": 1.5}])
async def test_a_phase_that_is_none_is_refused(api: Api, body: dict[str, Any]):
    answer = await api.http.post("/experiments/doses/phase", json=body)
    assert answer.status_code == 422
    assert await api.last_offset() == 0


async def test_refused_target_rewards_are_counted_and_their_values_kept_nowhere(api: Api):
    ids = [await target_decision(api) for _ in range(3)]
    assert (await api.reward(ids[0], CANARY)).status_code == 403
    batch = [{"decision_id": each, "reward": CANARY} for each in ids[1:]]
    outcomes = (await api.http.post("/reward/batch", json={"rewards": batch})).json()["rewards"]
    assert [each["problem"]["status"] for each in outcomes] == [403, 403]
    metrics = (await api.http.get("/metrics")).text
    assert 'daband_target_rewards_refused_total{experiment="doses"} 3.0' in metrics
    assert "8414709848" not in metrics
    source = await api.decide()
    await api.reward(source, 0.123)
    values = await stored_values(api)
    assert 0.123 in values  # what is accepted is found this way
    assert CANARY not in values
    assert not any("8414709848" in str(value) for value in values)


async def test_a_flip_racing_with_rewards_leaves_each_refused_whole_or_recorded_once(api: Api):
    ids = [await target_decision(api) for _ in range(24)]

    async def send(number: int, decision_id: str) -> tuple[str, int]:
        await asyncio.sleep(0.002 * (number % 5))
        return decision_id, (await api.reward(decision_id, 0.5)).status_code

    async def flip() -> None:
        await asyncio.sleep(0.004)
        assert (await open_target(api)).status_code == 200

    flipping = asyncio.create_task(flip())
    answers = await asyncio.gather(
        *(send(number, each) for number, each in enumerate(ids) for _ in range(2))
    )
    await flipping
    assert {status for _, status in answers} <= {200, 201, 403}
    experiment = await api.services.experiments.get("doses")
    events = await api.services.event_log.read(experiment.experiment_id, 0, 1000)
    flips = [event.offset for event in events if event.kind == "phase"]
    rewards = [event for event in events if event.kind == "reward"]
    assert len(flips) == 1
    assert all(event.offset > flips[0] for event in rewards)
    assert len({event.event_key for event in rewards}) == len(rewards)
    created = [each for each, status in answers if status == 201]
    assert sorted(created) == sorted(event.event_key for event in rewards)
    # What was refused can be sent again and then counts, once.
    refused = set(ids) - set(created)
    assert {(await api.reward(each, 0.5)).status_code for each in refused} <= {201}
    assert {(await api.reward(each, 0.5)).status_code for each in ids} == {200}
