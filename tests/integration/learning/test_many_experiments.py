"""Many experiments in one trainer: idle ones cost nothing, active ones take turns."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from service.records import Experiment
from service.storage.leases import Leases
from tests.support.api import CONTEXT, TAUGHT, Api, running_api
from tests.support.waiting import eventually

EPISODE = int(TAUGHT["config"]["episode_length"])
TRAINING: dict[str, Any] = {"trainer_inside": True, "poll_seconds": 0.02}


async def create(api: Api, *names: str, size: int = len(CONTEXT)) -> None:
    for name in names:
        declared = {**TAUGHT, "name": name, "context": {"kind": "shared", "shape": [size]}}
        assert (await api.http.post("/experiments", json=declared)).status_code == 201


async def play(
    api: Api, name: str, rounds: int = 1, context: Sequence[float] = tuple(CONTEXT)
) -> None:
    for _ in range(rounds):
        body = {"experiment": name, "source": {"context": context}}
        answer = await api.http.post("/select", json=body)
        rewarded = await api.reward(answer.json()["source"]["decision_id"])
        assert rewarded.status_code == 201


def folded(api: Api, name: str, rewards: int) -> Callable[[], Awaitable[bool]]:
    async def is_folded() -> bool:
        state = (await api.http.get(f"/experiments/{name}/state")).json()
        return bool(state["counts"]["folded_rewards"] == rewards)

    return is_folded


def metric(api: Api, name: str) -> float:
    value = api.services.metrics.registry.get_sample_value(name)
    assert value is not None
    return float(value)


def is_nobody_led(api: Api) -> bool:
    return metric(api, "daband_led_experiments") == 0


async def test_a_learner_leaves_memory_when_idle_and_comes_back(database_url: str):
    async with running_api(database_url, **TRAINING, learner_idle_seconds=0.05) as api:
        await create(api, "doses")
        for rewards in range(1, 4):
            await play(api, "doses")
            await eventually(folded(api, "doses", rewards))
            await eventually(lambda: is_nobody_led(api))
        experiment = await api.services.experiments.get("doses")
        assert await api.services.failures.get(experiment.experiment_id) is None


async def test_an_update_that_was_due_when_the_process_ended_is_made_though_no_event_comes(
    database_url: str,
):
    # The first process folds and never gets so far as to train.
    never = {"training": "process", "training_deadline_seconds": 3600}
    async with running_api(database_url, **TRAINING, **never) as api:
        await create(api, "doses")
        await play(api, "doses", EPISODE)

        async def is_pending() -> bool:
            state = (await api.http.get("/experiments/doses/state")).json()
            return bool(state.get("is_training"))

        await eventually(is_pending)
    async with running_api(database_url, **TRAINING) as api:

        async def is_trained() -> bool:
            state = (await api.http.get("/experiments/doses/state")).json()
            return bool(state.get("last_training"))

        await eventually(is_trained)


async def test_experiments_that_do_not_fit_together_take_turns(database_url: str):
    names = [f"e-{number}" for number in range(4)]
    async with running_api(database_url, **TRAINING, learner_memory_bytes=1 << 20) as api:
        await create(api, *names, size=2048)
        for name in names:
            await play(api, name, context=[0.5] * 2048)
        for name in names:
            await eventually(folded(api, name, 1))
            assert metric(api, "daband_led_experiments") <= 1


async def test_what_a_poll_asks_does_not_grow_with_idle_experiments(
    database_url: str, monkeypatch: pytest.MonkeyPatch
):
    asked: list[int] = []

    look = Leases.due

    async def due(leases: Leases, trainer_id: str, names: Any = None) -> list[Experiment]:
        found = await look(leases, trainer_id, names)
        asked.append(len(found))
        return found

    monkeypatch.setattr(Leases, "due", due)
    async with running_api(database_url, **TRAINING, learner_idle_seconds=0.05) as api:
        await create(api, *(f"e-{number}" for number in range(50)), "doses")
        await play(api, "doses")
        await eventually(folded(api, "doses", 1))
        await eventually(lambda: is_nobody_led(api))
        asked.clear()
        await eventually(lambda: len(asked) > 5)
        assert set(asked) == {0}, "one query found that there is nothing to do"
        assert metric(api, "daband_waiting_experiments") == 0
