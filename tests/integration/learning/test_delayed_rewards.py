"""Rewards that come late, and rewards that never come."""

from functools import partial

from model.rounds import Floats
from model.state.snapshot import opened
from tests.support.api import Api, running_api
from tests.support.learning import (
    EPISODE,
    TRAINING,
    create,
    idle_state,
    is_folded,
    is_replayed,
    play,
)
from tests.support.waiting import eventually


async def statistics(api: Api) -> dict[str, Floats]:
    """A and b of the newest snapshot."""
    experiment = await api.services.experiments.get("doses")
    newest = await api.services.snapshots.latest(experiment.experiment_id)
    assert newest is not None
    arrays = opened(newest.blob)[1]
    return {name: arrays[f"statistics.{name}"] for name in ("gram", "b")}


async def test_a_late_reward_is_folded_under_the_current_encoder(url):
    """There is no window after which a reward is refused."""
    async with running_api(url, **TRAINING) as api:
        await create(api)
        early = (await api.select("early")).json()["source"]["decision_id"]
        await play(api, EPISODE)
        assert (await idle_state(api, EPISODE))["encoder_version"] >= 1
        assert (await api.reward(early)).status_code == 201
        assert (await idle_state(api, EPISODE + 1))["counts"]["source_rewards"] == EPISODE + 1
        assert await is_replayed(api)


async def test_decision_without_a_reward_teaches_no_arm_anything(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, 4)
        await idle_state(api, 4)
        before = await statistics(api)
        for _ in range(10):
            assert (await api.select()).status_code == 200
        await eventually(partial(is_folded, api))
        after = await statistics(api)
        assert all((after[name] == before[name]).all() for name in before)
        assert await is_replayed(api)
