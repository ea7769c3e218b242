"""No experiment harms another: what fails in one of them stays there."""

import json
from typing import Any

import pytest
import sqlalchemy as sa

from service.experiment_spec import ExperimentSpec
from service.learning.replay import replay
from service.records import EventKind, Experiment
from service.storage import tables
from tests.support.api import CONTEXT, TAUGHT, Api, running_api
from tests.support.waiting import eventually

TRAINING: dict[str, Any] = {"trainer_inside": True, "poll_seconds": 0.05}
EPISODE = int(TAUGHT["config"]["episode_length"])
EVERY_REWARD = {**TAUGHT, "config": {**TAUGHT["config"], "episode_length": 1}}
# One update of it needs many gigabytes.
POISON = {
    **TAUGHT,
    "name": "poison",
    "config": {
        "batch_size": 65536,
        "hidden_sizes": [8192],
        "episode_length": 1,
        "holdout_share": 0.0,
    },
}


async def smuggle(api: Api, declared: dict[str, Any]) -> Experiment:
    """An experiment that no check of its budget has seen."""
    spec = ExperimentSpec.from_json(declared["name"], json.dumps(declared))
    return await api.services.experiments.create(spec.name, spec.to_json())


async def play(api: Api, name: str, rounds: int) -> None:
    for _ in range(rounds):
        body = {"experiment": name, "source": {"context": CONTEXT}, "target": {"context": CONTEXT}}
        answer = await api.http.post("/select", json=body)
        assert answer.status_code == 200, answer.text
        rewarded = await api.reward(answer.json()["source"]["decision_id"])
        assert rewarded.status_code == 201


async def state(api: Api, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (await api.http.get(f"/experiments/{name}/state")).json()
    return found


async def is_failing(api: Api, name: str) -> bool:
    return bool((await state(api, name))["training"]["status"] == "failing")


async def kinds(api: Api, experiment: Experiment) -> list[EventKind]:
    events = await api.services.event_log.read(experiment.experiment_id, 0, 1000)
    return [event.kind for event in events]


async def learns(api: Api, name: str) -> None:
    """Play an episode until its encoder was trained and the state shows it."""
    before = (await state(api, name)).get("last_training", {}).get("episode", 0)
    await play(api, name, EPISODE)

    async def is_trained() -> bool:
        last = (await state(api, name)).get("last_training", {})
        return bool(last.get("episode", 0) > before)

    await eventually(is_trained)


async def is_replayed(api: Api) -> bool:
    """Whether the log folded from zero gives the stored state, refusals included."""
    experiment, services = await api.services.experiments.get("doses"), api.services
    report = await replay(experiment, services.event_log, services.snapshots, services.candidates)
    return report.is_equal and report.version > 0


def failing_metric(api: Api, name: str) -> float | None:
    registry = api.services.metrics.registry
    return registry.get_sample_value("daband_learning_failing", {"experiment": name})


async def test_a_training_that_cannot_be_is_refused_and_all_others_go_on(url: str):
    settings = {**TRAINING, "training": "process", "training_memory_bytes": 512 << 20}
    async with running_api(url, **settings) as api:
        poison = await smuggle(api, POISON)
        assert (await api.http.post("/experiments", json=TAUGHT)).status_code == 201
        await play(api, "poison", 1)
        await eventually(lambda: is_failing(api, "poison"))
        await learns(api, "doses")
        found = (await state(api, "poison"))["training"]
        assert found["stage"] == "training"
        assert found["reason"] == "Training of episode 1 failed: it ran out of memory."
        assert found["failures"] == 1
        assert EventKind.REFUSAL in await kinds(api, poison)
        await play(api, "poison", 3)  # it takes decisions and rewards, and folds them

        async def is_folded() -> bool:
            return bool((await state(api, "poison"))["counts"]["folded_rewards"] == 4)

        await eventually(is_folded)
        await eventually(lambda: failing_metric(api, "poison") == 1)
        assert failing_metric(api, "doses") in (None, 0)
        assert (await api.http.get("/readyz")).status_code == 200
        assert (await state(api, "doses"))["training"]["status"] in ("idle", "running")


async def test_a_training_that_overran_waits_across_restarts_and_recovers(url: str):
    hasty = {**TRAINING, "training": "process", "training_deadline_seconds": 1e-3}
    hasty["learning_pause_seconds"] = 3600
    async with running_api(url, **hasty) as api:
        created = await api.http.post("/experiments", json=EVERY_REWARD)
        assert created.status_code == 201
        await play(api, "doses", 1)
        await eventually(lambda: is_failing(api, "doses"))
        await play(api, "doses", 1)  # another update is pending, and waits
    async with running_api(url, **TRAINING) as api:
        experiment = await api.services.experiments.get("doses")
        await play(api, "doses", 1)

        async def is_folded() -> bool:
            return bool((await state(api, "doses"))["counts"]["folded_rewards"] == 3)

        await eventually(is_folded)
        found = (await state(api, "doses"))["training"]
        assert found["reason"] == "Training of episode 1 failed: it took longer than 0.001 s."
        assert found["failures"] == 1
        assert (await kinds(api, experiment)).count(EventKind.REFUSAL) == 1
        ended = sa.update(tables.learning_failures).values(retry_at=tables.DatabaseNow())
        await api.services.database.write(lambda connection: connection.execute(ended))
    async with running_api(url, **TRAINING) as api:

        async def is_well() -> bool:
            return not await is_failing(api, "doses")

        await eventually(is_well)  # though no event has come since
        await eventually(lambda: is_replayed(api))


@pytest.mark.parametrize("spec", ["{}", '{"arms": 3}', "not json"])
async def test_a_log_that_cannot_be_folded_is_the_matter_of_its_experiment(url: str, spec: str):
    async with running_api(url, **TRAINING) as api:
        assert (await api.http.post("/experiments", json=TAUGHT)).status_code == 201
        broken = await api.services.experiments.create("broken", spec)
        longer = sa.update(tables.experiments).values(head_offset=1)
        mine = tables.experiments.c.experiment_id == broken.experiment_id
        await api.services.database.write(lambda connection: connection.execute(longer.where(mine)))
        await eventually(lambda: failing_metric(api, "broken") == 1)
        await learns(api, "doses")
        failure = await api.services.failures.get(broken.experiment_id)
        assert failure is not None
        assert failure.stage == "folding"
        assert (await api.http.get("/readyz")).status_code == 200
