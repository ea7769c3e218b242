"""Training catches up: with rewards that came at once, with target contexts that came last, on request."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.records import EventKind, SnapshotRecord, utc_now
from service.routes.experiments import state_from
from tests.support.api import CONTEXT, OTHER_CONTEXT, Api, running_api
from tests.support.builders import stored_experiment
from tests.support.learning import (
    EPISODE,
    TRAINING,
    create,
    idle_state,
    is_replayed,
    metric_value,
    play,
    state,
)
from tests.support.waiting import eventually

MANY = 5 * EPISODE


def contexts(count: int) -> Any:
    rng = np.random.default_rng(3)
    return (np.array(CONTEXT) + rng.standard_normal((count, 4))).astype(np.float32)


async def send_at_once(api: Api, count: int, name: str = "b") -> None:
    """Rounds without target contexts, decided in one request and rewarded in another."""
    some = (CONTEXT, OTHER_CONTEXT)
    rounds = [
        {"request_id": f"{name}-{i}", "source": {"context": some[i % 2]}} for i in range(count)
    ]
    answer = await api.http.post("/select/batch", json={"experiment": "doses", "rounds": rounds})
    decided = [each["source"] for each in answer.json()["rounds"]]
    rewards = [
        {"decision_id": each["decision_id"], "reward": float(each["arm"] == "low")}
        for each in decided
    ]
    assert (await api.http.post("/reward/batch", json={"rewards": rewards})).status_code == 200


async def upload(api: Api, count: int) -> None:
    answer = await api.http.post(
        "/target/contexts?experiment=doses&request_id=u-1",
        content=contexts(count).tobytes(),
        headers={"Content-Type": "application/octet-stream"},
    )
    assert answer.status_code == 201


async def target_means(api: Api) -> list[float]:
    rows = contexts(8).tolist()
    answer = await api.http.post("/target/select", json={"experiment": "doses", "contexts": rows})
    return [each["mean"] for each in answer.json()["decisions"]]


async def train(api: Api, **fields: Any) -> Any:
    return await api.http.post("/experiments/doses/train", json=fields)


async def causes(api: Api) -> list[str]:
    """Why updates began that no full episode began."""
    trail = (await api.http.get("/experiments/doses/audit")).json()["entries"]
    return [each["details"]["cause"] for each in trail if each["what"] == "training_begun"]


async def test_rewards_that_come_at_once_are_trained_on_as_one_by_one(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await send_at_once(api, MANY + 3)
        found = await idle_state(api, MANY + 3)
        assert found["episode"] == MANY // EPISODE
        assert found["training"]["status"] == "idle"
        assert (found["training"]["due_updates"], found["training"]["running"]) == (0, None)
        assert set(await causes(api)) <= {"rewards"}
        assert metric_value(api, "daband_due_updates") == 0
        assert await is_replayed(api)


def test_the_state_says_what_is_due_and_what_is_running():
    running = {"episode": 2, "rewards": 600, "target_contexts": 40}
    note = {
        "is_training": True, "due_updates": 7, "running_update": running, "judgement": "due"
    }  # fmt: skip
    record = SnapshotRecord(
        "x", 1, 1300, 1, 1, "", "", 0, is_pinned=False, created_at=utc_now(), note=note
    )
    found = state_from(stored_experiment("doses"), record, None)
    assert found["training"] == {
        "status": "running", "due_updates": 7, "running": running, "judgement": "due"
    }  # fmt: skip
    assert "running_update" not in found
    earlier = state_from(
        stored_experiment("doses"), replace(record, note={"is_training": True}), None
    )
    assert earlier["training"] == {
        "status": "running", "due_updates": 0, "running": None, "judgement": "none"
    }  # fmt: skip


async def test_catching_up_goes_on_after_a_restart(database_url):
    async with running_api(database_url) as api:  # nobody trains
        await create(api)
        await send_at_once(api, MANY)
    async with running_api(database_url, **TRAINING) as api:

        async def is_begun() -> bool:
            return bool((await state(api)).get("episode"))

        await eventually(is_begun)  # the process ends while updates may be due
    async with running_api(database_url, **TRAINING) as api:
        assert (await idle_state(api, MANY))["episode"] == MANY // EPISODE
        assert await is_replayed(api)


async def test_slow_rewards_are_trained_on_at_full_episodes_alone(database_url):
    async with running_api(database_url, **TRAINING) as api:
        await create(api)
        for number in range(3):
            await play(api, EPISODE, start=100 * number)
            found = await idle_state(api, EPISODE * (number + 1))
            assert found["episode"] == number + 1
        assert await causes(api) == []


async def test_target_contexts_that_come_last_change_the_policy(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await send_at_once(api, EPISODE)
        await idle_state(api, EPISODE)
        before, version = await target_means(api), (await state(api))["encoder_version"]
        await upload(api, EPISODE)

        async def is_trained() -> bool:
            return bool((await state(api))["encoder_version"] > version)

        await eventually(is_trained)
        found = await idle_state(api, EPISODE)
        assert found["last_training"]["contexts"] == {"source": EPISODE, "target": EPISODE}
        assert await causes(api) == ["target_contexts"]

        async def is_served() -> bool:
            return await target_means(api) != before

        await eventually(is_served)
        assert await is_replayed(api)


async def test_few_target_contexts_cause_no_update(database_url):
    async with running_api(database_url, **TRAINING) as api:
        await create(api)
        await send_at_once(api, EPISODE)
        await idle_state(api, EPISODE)
        await upload(api, EPISODE - 1)
        found = await idle_state(api, EPISODE)
        assert found["counts"]["target_contexts"] == EPISODE - 1
        assert (found["episode"], await causes(api)) == (1, [])


async def test_a_person_may_train_now(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await send_at_once(api, 3)
        asked = {"request_id": "t-1", "by": "Ada", "reason": "a new batch"}
        first = await train(api, **asked)
        assert (first.status_code, first.json()["status"]) == (202, "created")
        again = await train(api, **asked)
        assert again.json() == {**first.json(), "status": "already_recorded"}

        async def is_trained() -> bool:
            return bool((await state(api)).get("last_training"))

        await eventually(is_trained)
        assert (await idle_state(api, 3))["episode"] == 1
        trail = (await api.http.get("/experiments/doses/audit")).json()["entries"]
        details = trail[0]["details"]
        assert (trail[0]["what"], details["cause"]) == ("training_begun", "request")
        assert (details["by"], details["reason"]) == ("Ada", "a new batch")
        assert await is_replayed(api)


@pytest.mark.parametrize("has_decision", [True, False])
async def test_without_a_reward_there_is_nothing_to_train_on(database_url, has_decision):
    async with running_api(database_url) as api:
        await create(api)
        if has_decision:
            await api.decide()
        head = await api.last_offset()
        answer = await train(api)
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/nothing-to-train-on")
        assert await api.last_offset() == head


async def test_a_reward_that_is_not_folded_yet_is_enough_to_train_on(database_url):
    async with running_api(database_url) as api:
        await create(api)
        await api.reward(await api.decide())
        assert (await train(api)).status_code == 202
        experiment = await api.services.experiments.get("doses")
        (event,) = await api.services.history.lifecycle(experiment.experiment_id)
        assert event.kind is EventKind.TRAINING
