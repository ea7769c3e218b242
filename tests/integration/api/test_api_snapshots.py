"""Snapshots over HTTP, on SQLite and on Postgres."""

import json

import numpy as np
import pytest

from model.learner import Learner
from model.rounds import Domain
from model.state.export import open_exported
from model.state.snapshot import to_bytes
from service.experiment_spec import ExperimentSpec
from service.records import EventKind, NewSnapshot
from service.storage.leases import Leases
from tests.support.api import CONTEXT, DOSES, Api
from tests.support.storage import flip_a_bit

SPEC = ExperimentSpec.from_json("doses", json.dumps(DOSES))
BLOB = to_bytes(Learner(SPEC.bandit_config(), SPEC.seed), 2, with_contexts=False)


@pytest.fixture
async def saved(api: Api, leases: Leases) -> Api:
    """The app after two snapshots of `doses`."""
    experiment = await api.services.experiments.get("doses")
    lease = await leases.acquire(experiment.experiment_id, "me")
    assert lease is not None
    for version in (0, 1):
        await api.services.snapshots.save(
            experiment.experiment_id,
            epoch=lease.epoch,
            expected_version=version,
            snapshot=NewSnapshot(version, 1, f"sha256:{version}", BLOB, note={"n": version}),
        )
    return api


async def test_snapshots_are_listed_the_newest_first(saved: Api):
    listed = (await saved.http.get("/experiments/doses/snapshots")).json()["snapshots"]
    assert [each["version"] for each in listed] == [2, 1]
    assert (listed[0]["encoder_version"], listed[0]["note"]) == (1, {"n": 1})
    limited = await saved.http.get("/experiments/doses/snapshots?limit=1")
    assert len(limited.json()["snapshots"]) == 1


@pytest.mark.parametrize("limit", ["0", "1001", "many"])
async def test_a_limit_is_a_sensible_number(saved: Api, limit: str):
    answer = await saved.http.get(f"/experiments/doses/snapshots?limit={limit}")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/limit")


async def test_a_restore_is_an_event_of_the_log(saved: Api):
    path = "/experiments/doses/snapshots/2/restore"
    answer = await saved.http.post(path, json={"request_id": "back"})
    expected = {"experiment": "doses", "version": 2, "offset": 1, "status": "created"}
    assert (answer.status_code, answer.json()) == (202, expected)
    experiment = await saved.services.experiments.get("doses")
    (event,) = await saved.services.event_log.read(experiment.experiment_id, after=0, limit=9)
    assert (event.kind, json.loads(event.payload)["version"]) == (EventKind.RESTORE, 2)
    assert (await saved.services.snapshots.get(experiment.experiment_id, 2)).record.is_pinned
    again = await saved.http.post(path, json={"request_id": "back"})
    assert again.json() == {**expected, "status": "already_recorded"}


async def test_a_restore_id_is_for_one_version(saved: Api):
    for version, status in ((1, 202), (2, 409)):
        path = f"/experiments/doses/snapshots/{version}/restore"
        answer = await saved.http.post(path, json={"request_id": "back"})
        assert answer.status_code == status


async def test_a_restore_needs_no_body(saved: Api):
    for offset in (1, 2):
        answer = await saved.http.post("/experiments/doses/snapshots/2/restore")
        assert (answer.status_code, answer.json()["offset"]) == (202, offset)


async def test_a_snapshot_that_is_not_kept_is_not_found(saved: Api):
    for answer in (
        await saved.http.post("/experiments/doses/snapshots/9/restore"),
        await saved.http.get("/experiments/doses/snapshots/9/policy"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-snapshot")


async def test_a_damaged_snapshot_is_neither_restored_nor_downloaded(saved: Api):
    experiment = await saved.services.experiments.get("doses")
    await flip_a_bit(saved.services.database, experiment.experiment_id, 2)
    for answer in (
        await saved.http.post("/experiments/doses/snapshots/2/restore"),
        await saved.http.get("/experiments/doses/snapshots/2/policy"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/damaged-snapshot")
        assert answer.headers["content-type"] == "application/problem+json"
    assert await saved.last_offset() == 0
    whole = await saved.http.post("/experiments/doses/snapshots/1/restore")
    assert whole.status_code == 202


@pytest.mark.parametrize("version", ["0", "-1", "one", "9" * 30])
async def test_a_version_is_a_positive_number(saved: Api, version: str):
    answer = await saved.http.get(f"/experiments/doses/snapshots/{version}/policy")
    assert answer.status_code == 422


async def test_a_policy_is_downloaded_with_its_manifest(saved: Api):
    answer = await saved.http.get("/experiments/doses/snapshots/2/policy")
    manifest = json.loads(answer.headers["x-policy-manifest"])
    assert answer.headers["content-type"] == "application/octet-stream"
    assert (manifest["experiment"], manifest["version"]) == ("doses", 2)
    assert answer.headers["etag"] == f'"{manifest.pop("sha256")}"'
    found = open_exported(answer.content)
    assert found.manifest == manifest
    assert (manifest["arms"], manifest["context"]["shape"]) == (["low", "mid", "high"], [4])
    expected = Learner(SPEC.bandit_config(), SPEC.seed).policy()
    for policy in (found.policy, expected):
        scores = policy.score_many(np.array([CONTEXT]), Domain.TARGET)
        assert scores.ucb.tolist() == expected.score_many([CONTEXT], Domain.TARGET).ucb.tolist()


async def test_a_restore_records_its_author_and_reason(saved: Api):
    body = {"request_id": "back", "by": "Ada", "reason": "the new one looked odd"}
    await saved.http.post("/experiments/doses/snapshots/2/restore", json=body)
    (found,) = (await saved.http.get("/experiments/doses/audit")).json()["entries"]
    assert (found["offset"], found["what"]) == (1, "version_restored")
    assert (found["details"]["by"], found["details"]["reason"]) == ("Ada", body["reason"])
    assert found["details"]["version"] == 2
