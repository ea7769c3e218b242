"""Experiments over HTTP, on SQLite and on Postgres."""

import dataclasses
import json
from typing import Any

import pytest

from model.config import RECIPE, BanditConfig
from service.records import NewSnapshot
from service.storage.leases import Leases
from tests.support.api import DOSES, Api, running_api

DEFAULTS = {"fallback_arm": None, "durability": "durable", "reward_range": None}
FIELDS = {field.name for field in dataclasses.fields(BanditConfig)}


async def test_a_created_experiment_is_answered_as_declared(api: Api):
    wanted = {**DOSES, "name": "new"}
    answer = await api.http.post("/experiments", json=wanted)
    body = answer.json()
    assert answer.status_code == 201
    assert body["declared"] == {**wanted, **DEFAULTS}
    assert {**body["declared"], "config": body["config"]}.items() <= body.items()
    assert (body["phase"], body["status"]) == ("zero_shot", "active")
    assert (await api.http.get("/experiments/new")).json() == body


async def test_the_configuration_in_force_is_shown_whole_with_its_recipe(api: Api):
    body = (await api.http.get("/experiments/doses")).json()
    in_force = {name: body["config"][name] for name in DOSES["config"]}
    assert body["config"].keys() == FIELDS
    assert in_force == DOSES["config"]
    assert (body["config"]["arm_count"], body["config"]["context_shape"]) == (3, [4])
    assert body["config"]["view_dropout"] == 0.5  # the method's own
    assert body["recipe"] == RECIPE.version
    (listed, _) = (await api.http.get("/experiments")).json()["experiments"]
    assert {**listed, "limits": body["limits"]} == body  # lists leave them out: they take time


async def test_an_experiment_that_no_build_can_run_does_not_hide_the_others(api: Api):
    spec = {**DOSES, "method": "magic"}
    await api.services.experiments.create("odd", json.dumps(spec))
    *others, odd = (await api.http.get("/experiments")).json()["experiments"]
    assert [each["name"] for each in others] == ["doses", "offers"]
    assert odd["config"] == odd["declared"]["config"] == DOSES["config"]


async def test_experiments_are_listed_the_oldest_first(api: Api):
    listed = (await api.http.get("/experiments")).json()["experiments"]
    assert [each["name"] for each in listed] == ["doses", "offers"]


async def test_defaults_are_filled_in(api: Api):
    small = {"name": "small", "arms": ["a"], "context": {"kind": "shared", "shape": [2]}}
    body = (await api.http.post("/experiments", json=small)).json()
    assert (body["method"], body["seed"], body["declared"]["config"]) == ("daband-plus", 0, {})


async def test_a_name_is_taken_once(api: Api):
    answer = await api.http.post("/experiments", json=DOSES)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/experiment-exists")


async def test_an_unknown_experiment_is_not_found(api: Api):
    for path in ("/experiments/nobody", "/experiments/nobody/state", "/experiments/%00"):
        answer = await api.http.get(path)
        assert answer.json()["type"] == "/problems/unknown-experiment"
        assert answer.status_code == 404


async def test_a_paused_experiment_takes_rewards_and_no_decisions(api: Api):
    decision_id = await api.decide()
    paused = await api.http.patch("/experiments/doses", json={"status": "paused"})
    assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    refused = await api.select()
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/experiment-paused")
    assert (await api.reward(decision_id)).status_code == 201
    await api.http.patch("/experiments/doses", json={"status": "active"})
    assert (await api.select()).status_code == 200


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": "a/b"}, "#/name"),
        ({"name": ""}, "#/name"),
        ({"name": "a" * 129}, "#/name"),
        ({"arms": []}, "#/arms"),
        ({"arms": ["a", "a"]}, "#/arms"),
        ({"arms": ["a", "b\0"]}, "#/arms/1"),
        ({"arms": ["é" * 65]}, "#/arms/0"),
        ({"arms": [1]}, "#/arms/0"),
        ({"context": {"kind": "odd", "shape": [4]}}, "#/context/kind"),
        ({"context": {"kind": "shared", "shape": []}}, "#/context/shape"),
        ({"context": {"kind": "shared", "shape": [0]}}, "#/context/shape"),
        ({"context": {"kind": "shared", "shape": [10**9]}}, "#/context/shape"),
        ({"context": {"kind": "shared", "shape": [True]}}, "#/context/shape/0"),
        ({"method": "magic"}, "#/method"),
        ({"seed": -1}, "#/seed"),
        ({"seed": "7"}, "#/seed"),
        ({"config": {"epsilon": 2}}, "#/config/epsilon"),
        ({"config": {"epsilon": "0.1"}}, "#/config/epsilon"),
        ({"config": {"epsilon": 10**400}}, "#/config/epsilon"),
        ({"config": {"latent_size": 65536}}, "#/config/latent_size"),
        ({"config": {"encoder": "conv"}}, "#/config/encoder"),
        ({"config": {"nonsense": 1}}, "#/config"),
        ({"config": {"arm_count": 5}}, "#/config"),
        ({"surprise": 1}, "#"),
    ],
)
async def test_a_bad_declaration_is_refused_at_its_place(
    api: Api, change: dict[str, Any], pointer: str
):
    answer = await api.http.post("/experiments", json={**DOSES, "name": "bad", **change})
    assert answer.status_code == 422, answer.text
    (place,) = answer.json()["errors"]
    assert place["pointer"] == pointer
    assert (await api.http.get("/experiments/bad")).status_code == 404


async def test_too_large_an_experiment_is_refused(api: Api):
    wide = {"arms": [f"a{i}" for i in range(1000)], "config": {"latent_size": 4096}}
    answer = await api.http.post("/experiments", json={**DOSES, "name": "wide", **wide})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/arms")


async def test_a_new_experiment_stands_at_zero(api: Api):
    state = (await api.http.get("/experiments/doses/state")).json()
    zero = {"decisions": 0, "source_rewards": 0, "folded_rewards": 0, "target_contexts": 0}
    assert (state["phase"], state["counts"], state["state_hash"]) == ("zero_shot", zero, None)
    assert (state["policy_version"], state["encoder_version"], state["lag"]) == (0, 0, 0)


async def test_state_comes_from_the_newest_snapshot_and_the_log(api: Api, leases: Leases):
    experiment = await api.services.experiments.get("doses")
    await api.decide()
    lease = await leases.acquire(experiment.experiment_id, "me")
    assert lease is not None
    note = {"counts": {"decisions": 1}, "condition_number": 2.5, "policy_version": "a lie"}
    snapshot = NewSnapshot(1, 3, "sha256:abc", b"state", note=note)
    await api.services.snapshots.save(
        experiment.experiment_id, epoch=lease.epoch, expected_version=0, snapshot=snapshot
    )
    await api.decide()
    state = (await api.http.get("/experiments/doses/state")).json()
    assert (state["policy_version"], state["encoder_version"]) == (1, 3)
    assert (state["head_offset"], state["folded_offset"], state["lag"]) == (2, 1, 1)
    assert (state["state_hash"], state["condition_number"]) == ("sha256:abc", 2.5)
    assert (state["counts"]["decisions"], state["counts"]["source_rewards"]) == (1, 0)


async def test_an_experiment_that_no_process_could_train_is_refused_with_the_figures(api: Api):
    config = {"batch_size": 65536, "episode_length": 1, "holdout_share": 0, "hidden_sizes": [2]}
    context = {"kind": "shared", "shape": [65536]}
    declared = {**DOSES, "name": "poison", "context": context, "config": config}
    answer = await api.http.post("/experiments", json=declared)
    details = [each["detail"] for each in answer.json()["errors"]]
    assert answer.status_code == 422
    assert any("One encoder update would need 2,979,064 MiB" in each for each in details)
    assert any("batch_size" in each and "the limit is 4,096 MiB" in each for each in details)
    assert (await api.http.get("/experiments/poison")).status_code == 404


@pytest.mark.parametrize("setting", ["max_experiments", "max_tenant_experiments"])
async def test_experiments_beyond_a_quota_are_refused_with_the_limit(setting: str, url: str):
    async with running_api(url, **{setting: 2}) as api:
        for name in ("one", "two"):
            answer = await api.http.post("/experiments", json={**DOSES, "name": name})
            assert answer.status_code == 201
        third = await api.http.post("/experiments", json={**DOSES, "name": "three"})
        assert (third.status_code, third.json()["limit"]) == (409, 2)
        assert third.json()["type"] == "/problems/too-many-experiments"
        again = await api.http.post("/experiments", json={**DOSES, "name": "one"})
        assert again.json()["type"] == "/problems/experiment-exists"
