"""Rounds with rewards against an app that learns, and waiting for what it has learned."""

from functools import partial
from typing import Any

from service.learning.replay import replay
from tests.support.api import CONTEXT, DOSES, OTHER_CONTEXT, TAUGHT, Api
from tests.support.waiting import eventually

EPISODE = int(DOSES["config"]["episode_length"])
TRAINING: dict[str, Any] = {"trainer_inside": True, "poll_seconds": 0.05, "lease_seconds": 2.0}
# A configuration that trains in seconds.
QUICK_TRAINING: dict[str, Any] = {
    "episode_length": 64,
    "latent_size": 4,
    "hidden_sizes": [8],
    "steps_per_episode": 4,
    "batch_size": 16,
    # The gate would refuse most encoders of so few steps.
    "gate_margin": 1.0,
    "gate_rank": 1.0,
}


async def create(api: Api, **changes: Any) -> None:
    declared = {**TAUGHT, **changes}
    assert (await api.http.post("/experiments", json=declared)).status_code == 201


async def play(api: Api, rounds: int, start: int = 0, **fields: Any) -> list[str]:
    """Rounds with rewards; the target decisions' ids."""
    target_ids = []
    for i in range(start, start + rounds):
        context = [value + 0.1 * (i % 7) for value in (CONTEXT if i % 2 else OTHER_CONTEXT)]
        sides = {"source": {"context": context}, "target": {"context": context}}
        answer = (await api.select(f"r-{i}", **sides, **fields)).json()
        target_ids.append(answer["target"]["decision_id"])
        reward = 1.0 if answer["source"]["arm"] == ("low" if i % 2 else "high") else 0.0
        assert (await api.reward(answer["source"]["decision_id"], reward)).status_code == 201
    return target_ids


async def state(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = (await api.http.get("/experiments/doses/state")).json()
    return found


async def newest_offset(api: Api) -> int:
    """The offset up to which the newest snapshot is folded."""
    experiment = await api.services.experiments.get("doses")
    newest = await api.services.snapshots.list(experiment.experiment_id, 1)
    return newest[0].offset if newest else 0


async def is_folded(api: Api) -> bool:
    """Whether all of the log is in a snapshot."""
    return await newest_offset(api) == await api.last_offset()


async def is_served(api: Api) -> bool:
    """Whether a snapshot decides."""
    return bool((await api.select()).json()["policy_version"] > 0)


async def is_newest_in_memory(api: Api) -> bool:
    """Whether requests are answered by the newest snapshot."""
    known = api.services.policies.known("doses")
    return known is None or known.policy.version.offset >= await newest_offset(api)


async def idle_state(api: Api, rewards: int) -> dict[str, Any]:
    """The state once all of the log is folded and served and no training is under way."""

    async def is_idle() -> bool:
        found = await state(api)
        is_done = found["counts"]["folded_rewards"] == rewards and not found["is_training"]
        return is_done and await is_folded(api)

    async def is_begun() -> bool:
        return await newest_offset(api) > 0

    await eventually(is_begun)
    await eventually(is_idle)
    await eventually(partial(is_newest_in_memory, api))
    return await state(api)


async def is_replayed(api: Api) -> bool:
    experiment = await api.services.experiments.get("doses")
    services = api.services
    report = await replay(experiment, services.event_log, services.snapshots, services.candidates)
    return report.is_equal and report.version > 0


def metric_value(api: Api, metric: str) -> float:
    """What a metric says of the experiment; -1 while it says nothing."""
    registry = api.services.metrics.registry
    value: float | None = registry.get_sample_value(metric, {"experiment": "doses"})
    return -1.0 if value is None else value


def is_blocked(api: Api) -> bool:
    return metric_value(api, "daband_trainer_blocked") == 1.0


async def has_waited(api: Api) -> bool:
    """Whether the trainer has looked at the log again since, and still waits."""
    api.services.metrics.set_blocked("doses", is_blocked=False)
    await eventually(lambda: is_blocked(api))
    return True
