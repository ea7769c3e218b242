"""The trainer in process: folds, trains in parallel, publishes, and restarts in the same state."""

import hashlib
import json
import logging
from functools import partial
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from model.config import RECIPE, SYSTEMS, ContextKind, Recipe
from model.rounds import Domain
from model.state.restore import restore_networks, restore_policy
from service.codec.context_sets import ContextSet
from service.errors import DamagedSnapshot
from service.experiment_spec import ExperimentSpec
from service.learning import training_loop
from service.learning.fold import refold_event
from service.learning.restore import LearnerStore
from service.records import EventKind, SnapshotRecord, phase_event
from service.storage import tables
from tests.support.api import CONTEXT, DOSES, OTHER_CONTEXT, TAUGHT, Api, running_api
from tests.support.learning import (
    EPISODE,
    TRAINING,
    create,
    has_waited,
    idle_state,
    is_blocked,
    is_replayed,
    is_served,
    metric_value,
    newest_offset,
    play,
    state,
)
from tests.support.storage import flip_a_bit
from tests.support.waiting import eventually


async def test_rewards_are_folded_and_encoders_activated(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, 2 * EPISODE)
        found = await idle_state(api, 2 * EPISODE)
        assert found["counts"]["source_rewards"] == 2 * EPISODE
        assert found["encoder_version"] >= 1
        assert found["last_training"]["verdict"]["is_accepted"] in (True, False)
        assert await is_replayed(api)


async def test_published_policy_is_served(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, 8)
        await idle_state(api, 8)
        await eventually(partial(is_served, api))


async def test_restart_takes_up_where_the_newest_snapshot_ends(url, caplog):
    caplog.set_level(logging.INFO, "service.learning.training_loop")
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, 6)
        await idle_state(api, 6)
        folded = await newest_offset(api)
    async with running_api(url, **TRAINING) as api:
        await play(api, 1, start=50)
        await idle_state(api, 7)
    begun = [line for line in caplog.records if getattr(line, "action", "") == "leadership_begun"]
    assert [vars(line)["offset"] for line in begun] == [0, folded]


async def test_restart_in_the_middle_of_a_training_reaches_the_same_state(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, EPISODE + 3)  # the process ends while the first encoder may be training
    async with running_api(url, **TRAINING) as api:
        await play(api, EPISODE, start=100)
        await idle_state(api, 2 * EPISODE + 3)
        assert await is_replayed(api)


async def forget_the_training(api: Api, record: SnapshotRecord) -> None:
    """Make a snapshot's note that of one saved before the first training ended."""
    note = json.dumps({**record.note, "last_training": {}})
    statement = sa.update(tables.snapshots).where(tables.snapshots.c.version == record.version)
    await api.services.database.write(
        lambda connection: connection.execute(statement.values(note=note))
    )


async def test_the_last_training_is_known_from_the_log_alone(url):
    """A trainer that ends between the event and the next snapshot has not recorded it in a snapshot."""
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, EPISODE)
        received = (await idle_state(api, EPISODE))["last_training"]
        assert received["episode"] == 1
    async with running_api(url) as api:
        experiment = await api.services.experiments.get("doses")
        for each in await api.services.snapshots.list(experiment.experiment_id):
            await flip_a_bit(api.services.database, experiment.experiment_id, each.version)
            await forget_the_training(api, each)
    async with running_api(url, **TRAINING) as api:
        await play(api, 1, start=50)
        assert (await idle_state(api, EPISODE + 1))["last_training"] == received


async def test_damaged_newest_snapshot_is_passed_over(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, 6)
        await idle_state(api, 6)
        await play(api, 6, start=50)
        await idle_state(api, 12)
        experiment = await api.services.experiments.get("doses")
        newest = await api.services.snapshots.latest(experiment.experiment_id)
    assert newest is not None
    async with running_api(url) as api:
        await flip_a_bit(api.services.database, experiment.experiment_id, newest.record.version)
        spec = ExperimentSpec.of(experiment)
        store = LearnerStore(api.services.event_log, api.services.snapshots)
        loaded = await store.load(experiment, spec)
        assert loaded.version < newest.record.version
        assert loaded.learner.offset < newest.record.offset
        assert (await api.select()).json()["policy_version"] < newest.record.version


# What another build took the methods for.
OTHER_RECIPE = Recipe(
    RECIPE.version + 1, SYSTEMS, {"daband-plus": {"view_dropout": 0.25, "alpha": 0.3}}, on_images={}
)


async def create_by(api: Api, recipe: Recipe) -> None:
    """An experiment that a build with this recipe created."""
    kind, shape = ContextKind(TAUGHT["context"]["kind"]), tuple(TAUGHT["context"]["shape"])
    spec = ExperimentSpec(
        "doses", tuple(TAUGHT["arms"]), kind, shape, seed=7, config=TAUGHT["config"]
    )
    await api.services.experiments.create("doses", **spec.resolved(recipe).row())


async def refolds(api: Api) -> list[dict[str, Any]]:
    """What the log says of having been folded again."""
    experiment = await api.services.experiments.get("doses")
    events = await api.services.history.lifecycle(experiment.experiment_id)
    return [json.loads(each.payload) for each in events if each.kind is EventKind.REFOLD]


async def test_another_recipe_leaves_a_running_experiment_as_it_is(url, caplog):
    async with running_api(url, **TRAINING) as api:
        await create_by(api, OTHER_RECIPE)
        await play(api, EPISODE + 3)
        await idle_state(api, EPISODE + 3)
        assert await is_replayed(api)
    async with running_api(url, **TRAINING) as api:
        assert await is_replayed(api)
        await play(api, EPISODE, start=100)
        assert (await idle_state(api, 2 * EPISODE + 3))["recipe"] == OTHER_RECIPE.version
        assert await is_replayed(api)
        experiment = await api.services.experiments.get("doses")
        newest = await api.services.snapshots.latest(experiment.experiment_id)
        assert newest is not None
        config = restore_policy(newest.blob).config
        assert config == ExperimentSpec.of(experiment).bandit_config()
        assert config.view_dropout == 0.25 != RECIPE.on_vectors["daband-plus"]["view_dropout"]
        assert await refolds(api) == []
    assert "folding_again" not in {getattr(line, "action", "") for line in caplog.records}


async def change_stored(api: Api, recipe: int, **values: Any) -> None:
    """Change the configuration in force behind the service's back."""
    experiment = await api.services.experiments.get("doses")
    text = json.dumps({**json.loads(experiment.config or "{}"), **values})
    statement = sa.update(tables.experiments).values(config=text, recipe=recipe)
    await api.services.database.write(lambda connection: connection.execute(statement))


@pytest.mark.parametrize(
    ("recipe", "values", "reason"),
    [
        (0, {"old_trick": True}, "this feature was removed: old_trick"),
        (RECIPE.version, {"view_dropout": 0.25}, "was learned under another configuration"),
        (RECIPE.version + 1, {}, f"was learned by recipe {RECIPE.version}"),
    ],
)
async def test_a_log_is_folded_again_once_behind_what_serves_and_says_so(
    url, monkeypatch, caplog, recipe, values, reason
):
    async with running_api(url, **TRAINING) as api:
        # One network: what retired recipes did to ensembles does not matter to it.
        await create(api, config={**TAUGHT["config"], "encoder": "mlp"})
        await play(api, EPISODE + 3)
        served = await idle_state(api, EPISODE + 3)
        folded = await newest_offset(api)
    async with running_api(url) as api:
        await change_stored(api, recipe, **values)
    monkeypatch.setattr(training_loop, "PAGE_BYTES", 1)  # between two pages a trainer may publish
    async with running_api(url, **TRAINING) as api:
        await play(api, EPISODE, start=100)
        await idle_state(api, 2 * EPISODE + 3)
        experiment = await api.services.experiments.get("doses")
        stored = await api.services.snapshots.list(experiment.experiment_id, 100)
        later = [each for each in stored if each.version > served["policy_version"]]
        assert later
        assert min(each.offset for each in later) > folded
        assert await is_replayed(api)
    async with running_api(url, **TRAINING) as api:
        await play(api, 1, start=200)
        await idle_state(api, 2 * EPISODE + 4)
        assert await is_replayed(api)
        (stated,) = await refolds(api)
        experiment = await api.services.experiments.get("doses")
        shown = (await api.http.get("/experiments/doses/audit")).json()["entries"]
    assert reason in stated["reasons"][-1]
    assert stated["config"] == json.loads(experiment.config or "")
    assert (stated["recipe_before"], stated["recipe"]) == (recipe, experiment.recipe)
    assert ("old_trick" in values) is (experiment.recipe != recipe)
    assert [each["details"] for each in shown if each["what"] == "log_folded_again"] == [stated]
    assert "folding_again" in {getattr(line, "action", "") for line in caplog.records}


async def test_an_interrupted_refold_is_begun_again_and_logged_once(url):
    """The trainer ends after the event, before it has published anything of the new fold."""
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, 4)
        await idle_state(api, 4)
    async with running_api(url) as api:
        await change_stored(api, 0, old_trick=True)
        experiment = await api.services.experiments.get("doses")
        spec = ExperimentSpec.of(experiment)
        store = LearnerStore(api.services.event_log, api.services.snapshots)
        loaded = await store.load(experiment, spec)
        reasons = loaded.refold_reasons(spec)
        event = refold_event(experiment.experiment_id, spec, reasons, loaded.version)
        await api.services.event_log.append([event])
        text, recipe = spec.bandit_config().to_json(), RECIPE.version + 1  # not the snapshot's
        await api.services.experiments.set_config(
            experiment.experiment_id, text, recipe, epoch=experiment.epoch
        )
    async with running_api(url, **TRAINING) as api:
        await play(api, 1, start=100)
        await idle_state(api, 5)
        assert await is_replayed(api)
        assert len(await refolds(api)) == 1


async def test_what_an_earlier_build_created_beside_this_one_is_resolved_by_the_trainer(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        statement = sa.update(tables.experiments).values(config=None, recipe=None)
        await api.services.database.write(lambda connection: connection.execute(statement))
        shown = (await api.http.get("/experiments/doses")).json()
        await play(api, 2)
        await idle_state(api, 2)
        experiment = await api.services.experiments.get("doses")
        assert json.loads(experiment.config or "") == shown["config"]
        assert experiment.recipe == shown["recipe"] == RECIPE.version
        assert await is_replayed(api)


async def test_restore_brings_an_earlier_encoder_back(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, 4)
        first = await idle_state(api, 4)
        await play(api, 2 * EPISODE, start=100)
        await idle_state(api, 2 * EPISODE + 4)
        answer = await api.http.post(
            f"/experiments/doses/snapshots/{first['policy_version']}/restore"
        )
        assert answer.status_code == 202

        async def is_back() -> bool:
            return await newest_offset(api) >= int(answer.json()["offset"])

        await eventually(is_back)
        assert await is_replayed(api)
        experiment = await api.services.experiments.get("doses")
        earlier = await api.services.snapshots.get(
            experiment.experiment_id, first["policy_version"]
        )
        newest = await api.services.snapshots.latest(experiment.experiment_id)
        assert newest is not None
        assert newest.record.encoder_version > earlier.record.encoder_version
        assert encoder_of(newest.blob) == encoder_of(earlier.blob)


def encoder_of(blob: bytes) -> list[list[float]]:
    networks, _ = restore_networks(blob)
    return [values.flatten().tolist() for values in networks.encoder.state_dict().values()]


async def test_restore_of_a_damaged_snapshot_waits_and_the_last_good_policy_serves(database_url):
    async with running_api(database_url, **TRAINING) as api:
        await create(api)
        await play(api, 4)
        first = (await idle_state(api, 4))["policy_version"]
        await play(api, 4, start=50)
        last_good = (await idle_state(api, 8))["policy_version"]
    async with running_api(database_url) as api:  # nobody trains: the restore is only logged
        restored = await api.http.post(f"/experiments/doses/snapshots/{first}/restore")
        restore_offset = int(restored.json()["offset"])
        experiment = await api.services.experiments.get("doses")
        await flip_a_bit(api.services.database, experiment.experiment_id, first)
    async with running_api(database_url, **TRAINING) as api:
        await eventually(lambda: is_blocked(api))
        await play(api, 4, start=100)  # decisions and rewards are taken all the same
        await eventually(lambda: has_waited(api))
        await eventually(lambda: metric_value(api, "daband_trainer_lag_events") > 4 * 3)
        assert (await api.select()).json()["policy_version"] >= last_good
        assert (await api.http.get("/readyz")).status_code == 200
        assert await newest_offset(api) < restore_offset
        assert await is_replayed(api)
        await flip_a_bit(api.services.database, experiment.experiment_id, first)  # repaired
        await idle_state(api, 12)
        assert not is_blocked(api)
        await eventually(lambda: metric_value(api, "daband_trainer_lag_events") == 0)
        assert await is_replayed(api)
        await flip_a_bit(api.services.database, experiment.experiment_id, first)
        with pytest.raises(DamagedSnapshot, match=f"restore at offset {restore_offset} needs"):
            await is_replayed(api)


async def test_target_rewards_fold_once_the_phase_is_open(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        target_ids = await play(api, 4)
        assert (await api.reward(target_ids[0])).status_code == 403
        experiment = await api.services.experiments.get("doses")
        await api.services.event_log.append([phase_event(experiment.experiment_id)])
        assert (await api.reward(target_ids[0])).status_code == 201
        found = await idle_state(api, 5)
        assert found["counts"]["target_rewards"] == 1
        assert await is_replayed(api)


async def test_refused_target_rewards_leave_no_trace_in_the_state(tmp_path):
    hashes = []
    for name, refused in (("with", True), ("without", False)):
        async with running_api(f"sqlite:///{tmp_path / name}.db", **TRAINING) as api:
            await create(api)
            target_ids = await play(api, 6, eligible_arms=["mid"])  # so that nothing is drawn
            if refused:
                assert [(await api.reward(each)).status_code for each in target_ids] == [403] * 6
            await idle_state(api, 6)
            experiment = await api.services.experiments.get("doses")
            newest = await api.services.snapshots.latest(experiment.experiment_id)
            assert newest is not None
            hashes.append(newest.record.state_hash)
    assert hashes[0] == hashes[1]


async def test_per_arm_contexts_are_folded_and_come_back(url):
    async with running_api(url, **TRAINING) as api:
        await create(api, name="doses", context={"kind": "per_arm", "shape": [4]})
        contexts = {"low": CONTEXT, "mid": OTHER_CONTEXT, "high": [0.0, 1.0, 0.0, 0.0]}
        for i in range(EPISODE + 2):
            answer = (await api.select(f"r-{i}", source={"contexts": contexts})).json()
            await api.reward(answer["source"]["decision_id"], float(i % 2))
        await idle_state(api, EPISODE + 2)
        assert await is_replayed(api)
    async with running_api(url, **TRAINING) as api:
        answer = (await api.select("again", source={"contexts": contexts})).json()
        await api.reward(answer["source"]["decision_id"], 1.0)
        await idle_state(api, EPISODE + 3)
        assert await is_replayed(api)


async def test_published_snapshot_is_that_of_its_note_and_restores_to_a_policy(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, 5)
        await idle_state(api, 5)
        experiment = await api.services.experiments.get("doses")
        stored = await api.services.snapshots.latest(experiment.experiment_id)
        assert stored is not None
        assert hashlib.sha256(stored.blob).hexdigest() == stored.record.sha256
        assert restore_policy(stored.blob).version.offset == stored.record.offset
        on_the_bus = await api.services.bus.latest(experiment)
        assert on_the_bus is not None
        assert (on_the_bus.version, on_the_bus.blob) == (stored.record.version, stored.blob)
        kinds = [
            e.kind for e in await api.services.event_log.read(experiment.experiment_id, 0, 100)
        ]
        assert kinds.count(EventKind.REWARD) == 5


async def test_decision_can_be_derived_again_from_its_version_and_id(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, EPISODE)
        await idle_state(api, EPISODE)
        await eventually(partial(is_served, api))
        answer = (await api.select()).json()
        experiment = await api.services.experiments.get("doses")
        stored = await api.services.snapshots.get(
            experiment.experiment_id, answer["policy_version"]
        )
        decision = answer["source"]
        again = restore_policy(stored.blob).select_many(
            np.array([CONTEXT]), Domain.SOURCE, [decision["decision_id"]]
        )
        assert DOSES["arms"][int(again.arms[0])] == decision["arm"]
        assert again.probabilities[0].tolist() == list(decision["probabilities"].values())
        path = f"/experiments/doses/decisions/{decision['decision_id']}"
        found = (await api.http.get(path)).json()
        assert (found["policy_version"], found["is_equal"]) == (answer["policy_version"], True)
        assert found["derived"] == decision
        early = (await api.http.get("/experiments/doses/log?limit=200")).json()["entries"][-1]
        assert early["policy_version"] == 0  # before any snapshot
        path = f"/experiments/doses/decisions/{early['decision_id']}"
        assert (await api.http.get(path)).json()["is_equal"]


async def test_uploaded_contexts_fold_survive_a_restart_and_replay(url):
    rows = np.random.default_rng(1).standard_normal((9000, 4)).astype(np.float32)
    headers = {"Content-Type": "application/octet-stream"}
    query = {"experiment": "doses", "request_id": "u-1"}
    async with running_api(url, **TRAINING) as api:
        await create(api, config={**TAUGHT["config"], "reservoir_size": 64})
        for _ in range(2):
            await api.http.post(
                "/target/contexts", content=rows.tobytes(), headers=headers, params=query
            )
        stored = {"experiment": "doses", "contexts": [CONTEXT] * 3, "store": True}
        await api.http.post("/target/select", json=stored)
        await play(api, 4)
        found = await idle_state(api, 4)
        assert found["counts"]["target_contexts"] == 9000 + 3 + 4
        assert found["counts"]["decisions"] == 8
        assert await is_replayed(api)
    async with running_api(url, **TRAINING) as api:
        await play(api, 2 * EPISODE, start=100)
        await idle_state(api, 2 * EPISODE + 4)
        assert await is_replayed(api)


async def test_parts_without_their_completion_count_for_nothing(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        experiment = await api.services.experiments.get("doses")
        part = ContextSet(experiment.experiment_id, "u-1").part(0, 1, bytes(16))
        await api.services.event_log.append([part])
        await play(api, 2)
        found = await idle_state(api, 2)
        assert found["counts"]["target_contexts"] == 2
        content = bytes(16)  # the same upload, sent again, completes
        answer = await api.http.post(
            "/target/contexts?experiment=doses&request_id=u-1",
            content=content,
            headers={"Content-Type": "application/octet-stream"},
        )
        assert answer.status_code == 201
        await idle_state(api, 2)
        assert (await state(api))["counts"]["target_contexts"] == 3
        assert await is_replayed(api)
