"""Offline evaluations over HTTP, on SQLite and on Postgres."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from model.learner import Learner
from model.ope.logged import LoggedRounds
from model.state.snapshot import to_bytes
from service.auth.tenants import UNNAMED
from service.evaluating.evaluation import Evaluation
from service.evaluating.experiment_log import decisions_and_contexts_of
from service.evaluating.jobs import EvaluationJobs
from service.evaluating.running import EvaluationStores
from service.experiment_spec import ExperimentSpec
from service.records import NewSnapshot
from service.storage.database import Database
from service.storage.evaluations import Evaluations
from service.storage.leases import Leases
from tests.support.api import DOSES, Api, running_api
from tests.support.evaluations import played
from tests.support.waiting import eventually

ROUNDS = 150
UNIFORM = {"kind": "uniform"}


@pytest.fixture
async def lab(database_url: str) -> AsyncIterator[Api]:
    """The app with a log of `lab`; no process runs the queue."""
    async with running_api(database_url) as api:
        await played(api.services.experiments, api.services.event_log, "lab", ROUNDS)
        yield api


@pytest.fixture
def jobs(lab: Api) -> EvaluationJobs:
    services = lab.services
    stores = EvaluationStores(services.experiments, services.event_log, services.snapshots)
    return EvaluationJobs(stores, services.evaluations)


async def queued(lab: Api, *candidates: dict[str, Any], **fields: Any) -> dict[str, Any]:
    body = {"experiment": "lab", "candidates": list(candidates) or [UNIFORM], **fields}
    answer = await lab.http.post("/evaluations", json=body)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def shown(lab: Api, job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await lab.http.get(f"/evaluations/{job['evaluation_id']}")).json()
    return found


async def test_candidates_are_compared_in_a_job(lab: Api, jobs: EvaluationJobs):
    system = {"kind": "system", "method": "linucb", "config": {"alpha": 0.5}}
    job = await queued(lab, UNIFORM, {"kind": "arm", "arm": "mid"}, system)
    assert (job["status"], job["result"]) == ("queued", None)
    assert await jobs.run_next()
    done = await shown(lab, job)
    assert (done["status"], done["problem"]) == ("done", None)
    head = await lab.last_offset("lab")
    assert done["progress"] == {"done": head, "total": head}
    result = done["result"]
    assert (result["rounds"], result["unrewarded"], result["max_weight"]) == (ROUNDS, 0, 10.0)
    names = {each["name"] for each in result["candidates"]}
    assert names == {"uniform", "arm:mid", "system:linucb,alpha=0.5"}
    for each in result["candidates"]:
        assert each["headline"] == "dr"
        assert 0 < each["support"]["effective_rounds"] <= ROUNDS
        assert each["support"]["overlap"] == pytest.approx(1.0)
        assert [point[0] for point in each["curve"]] == [64, 128, ROUNDS]
    values = [each["value"] for each in result["candidates"]]
    assert values == sorted(values, reverse=True)


async def test_a_stored_version_is_evaluated_and_says_what_it_was_trained_on(
    lab: Api, jobs: EvaluationJobs, database: Database
):
    experiment = await lab.services.experiments.get("lab")
    spec = ExperimentSpec.of(experiment)
    learner = Learner(spec.bandit_config(), spec.seed)
    learner.advance(90)
    blob = to_bytes(learner, 1, with_contexts=False)
    lease = await Leases(database).acquire(experiment.experiment_id, "me")
    assert lease is not None
    await lab.services.snapshots.save(
        experiment.experiment_id,
        epoch=lease.epoch,
        expected_version=0,
        snapshot=NewSnapshot(90, 0, "sha256:0", blob),
    )
    job = await queued(lab, {"kind": "version", "version": 1}, UNIFORM, target=True)
    await jobs.run_next()
    done = await shown(lab, job)
    assert done["status"] == "done", done["problem"]
    version = next(each for each in done["result"]["candidates"] if each["name"] == "version:1")
    assert version["trained_on"] == 30  # three events a round
    assert any("too high" in each for each in version["warnings"])
    for each in done["result"]["candidates"]:
        assert each["target"]["target_contexts"] == ROUNDS
        assert each["target"]["is_identifiable"] == (each["target"]["reason"] is None)


async def test_uploaded_contexts_stand_for_the_target_too(lab: Api, jobs: EvaluationJobs):
    rows = np.random.default_rng(0).standard_normal((3000, 4)).astype(np.float32)
    uploaded = await lab.http.post(
        "/target/contexts",
        params={"experiment": "lab", "request_id": "u-1"},
        content=rows.tobytes(),
        headers={"Content-Type": "application/octet-stream"},
    )
    assert uploaded.status_code == 201, uploaded.text
    job = await queued(lab, UNIFORM)
    await jobs.run_next()
    result = (await shown(lab, job))["result"]
    assert (result["rounds"], result["unrewarded"]) == (ROUNDS, 0)
    experiment = await lab.services.experiments.get("lab")
    pages = decisions_and_contexts_of(experiment, lab.services.event_log, experiment.head_offset)
    seen = [decision async for page in pages for _, decision in page]
    contexts = [each.context for each in seen if each.decision_id == ""]
    assert b"".join(contexts) == rows.tobytes()
    assert len(seen) == 2 * ROUNDS + len(rows)


async def test_the_report_is_a_page(lab: Api, jobs: EvaluationJobs):
    job = await queued(lab)
    path = f"/evaluations/{job['evaluation_id']}/report"
    early = await lab.http.get(path)
    assert (early.status_code, early.json()["type"]) == (409, "/problems/evaluation-unfinished")
    await jobs.run_next()
    answer = await lab.http.get(path)
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.text.count("<svg") == 2
    assert "<script" not in answer.text


async def test_the_same_request_is_one_job(lab: Api):
    first = await queued(lab, request_id="once")
    again = await queued(lab, request_id="once")
    assert first["evaluation_id"] == again["evaluation_id"]
    other = {"experiment": "lab", "candidates": [UNIFORM], "request_id": "once", "seed": 4}
    assert (await lab.http.post("/evaluations", json=other)).status_code == 409
    listed = (await lab.http.get("/evaluations")).json()["evaluations"]
    assert [each["evaluation_id"] for each in listed] == [first["evaluation_id"]]


async def test_evaluations_are_listed_by_experiment(lab: Api):
    await lab.http.post("/experiments", json=DOSES)
    job = await queued(lab)
    for name, count in (("lab", 1), ("doses", 0)):
        answer = await lab.http.get("/evaluations", params={"experiment": name})
        found = [each["evaluation_id"] for each in answer.json()["evaluations"]]
        assert found == [job["evaluation_id"]] * count
    unknown = await lab.http.get("/evaluations", params={"experiment": "nobody"})
    assert unknown.status_code == 404


async def test_a_queued_job_is_cancelled(lab: Api, jobs: EvaluationJobs):
    job = await queued(lab)
    path = f"/evaluations/{job['evaluation_id']}/cancel"
    assert (await lab.http.post(path)).json()["status"] == "cancelled"
    assert not await jobs.run_next()
    assert (await lab.http.post(path)).json()["status"] == "cancelled"


async def test_a_running_job_is_cancelled(
    lab: Api, jobs: EvaluationJobs, monkeypatch: pytest.MonkeyPatch
):
    job = await queued(lab)
    begun, gate = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(self: Evaluation, rounds: LoggedRounds) -> None:
        loop.call_soon_threadsafe(begun.set)
        asyncio.run_coroutine_threadsafe(gate.wait(), loop).result()

    monkeypatch.setattr(Evaluation, "add", slow)
    working = asyncio.create_task(jobs.run_next())
    await begun.wait()
    assert (await shown(lab, job))["status"] == "running"
    await lab.http.post(f"/evaluations/{job['evaluation_id']}/cancel")
    gate.set()
    assert await working
    found = await shown(lab, job)
    assert (found["status"], found["result"]) == ("cancelled", None)


async def test_a_job_of_a_dead_process_is_started_over(lab: Api, jobs: EvaluationJobs):
    job = await queued(lab)
    dead = await lab.services.evaluations.claim("dead", ttl_seconds=-1.0)
    assert dead is not None
    assert await lab.services.evaluations.claim("other", ttl_seconds=60) is not None
    assert not await lab.services.evaluations.finish(dead.evaluation_id, "dead", "{}")
    assert not await jobs.run_next()  # the other one is at work
    assert await lab.services.evaluations.finish(dead.evaluation_id, "other", "{}")
    assert (await shown(lab, job))["status"] == "done"


async def test_two_processes_never_claim_the_same_job(lab: Api):
    for _ in range(5):
        await queued(lab)
    claims = await asyncio.gather(
        *(lab.services.evaluations.claim(f"process {i}", 60) for i in range(8))
    )
    taken = [each.evaluation_id for each in claims if each is not None]
    assert len(taken) == len(set(taken))
    assert len(taken) >= 1


async def test_a_job_that_cannot_be_done_says_why(lab: Api, jobs: EvaluationJobs):
    job = await queued(lab, {"kind": "version", "version": 99})
    await jobs.run_next()
    found = await shown(lab, job)
    assert found["status"] == "failed"
    assert "does not exist or was pruned" in found["problem"]


async def test_a_bug_ends_the_job_and_not_the_process(
    lab: Api, jobs: EvaluationJobs, monkeypatch: pytest.MonkeyPatch
):
    def broken(self: Evaluation, rounds: LoggedRounds) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Evaluation, "add", broken)
    job = await queued(lab)
    assert await jobs.run_next()
    found = await shown(lab, job)
    assert found["status"] == "failed"
    assert "secret" not in found["problem"]


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"candidates": []}, "#/candidates"),
        ({"candidates": [{"kind": "arm"}]}, "#/candidates/0/arm"),
        ({"candidates": [{"kind": "arm", "arm": "nobody"}]}, "#/candidates/0/arm"),
        ({"candidates": [{"kind": "version"}]}, "#/candidates/0/version"),
        ({"candidates": [UNIFORM, {"kind": "system"}]}, "#/candidates/1/method"),
        ({"candidates": [{"kind": "system", "method": "x"}]}, "#/candidates/0/method"),
        (
            {"candidates": [{"kind": "system", "method": "linucb", "config": {"alpha": -1}}]},
            "#/candidates/0/config/alpha",
        ),
        ({"candidates": [{"kind": "file", "path": "/etc/passwd"}]}, "#/candidates/0/kind"),
        ({"candidates": [UNIFORM, UNIFORM]}, "#/candidates"),
        ({"confidence": 1.0}, "#/confidence"),
        ({"domain": "target", "target": True}, "#/target"),
    ],
)
async def test_bad_requests_are_refused(api: Api, fields: dict[str, Any], pointer: str):
    body = {"experiment": "doses", "candidates": [UNIFORM], **fields}
    answer = await api.http.post("/evaluations", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert (await api.http.get("/evaluations")).json() == {"evaluations": []}


async def test_unknown_things_are_not_found(api: Api):
    body = {"experiment": "nobody", "candidates": [UNIFORM]}
    assert (await api.http.post("/evaluations", json=body)).status_code == 404
    for path in ("/evaluations/none", "/evaluations/none/report"):
        assert (await api.http.get(path)).status_code == 404
    assert (await api.http.post("/evaluations/none/cancel")).status_code == 404


async def test_the_service_works_off_its_queue(database_url: str):
    async with running_api(database_url, trainer_inside=True, poll_seconds=0.05) as api:
        await played(api.services.experiments, api.services.event_log, "lab", 40)
        job = await queued(api)

        async def is_done() -> bool:
            return bool((await shown(api, job))["status"] == "done")

        await eventually(is_done)
        assert json.loads(json.dumps(await shown(api, job)))["result"]["rounds"] == 40


async def test_evaluations_survive_a_restart(database_url: str):
    async with running_api(database_url) as api:
        await played(api.services.experiments, api.services.event_log, "lab", 20)
        job = await queued(api)
        assert await api.services.evaluations.claim("dead", ttl_seconds=-1.0) is not None
    async with running_api(database_url, trainer_inside=True, poll_seconds=0.05) as api:

        async def is_done() -> bool:
            return bool((await shown(api, job))["status"] == "done")

        await eventually(is_done)


async def test_a_finished_job_stays_as_it_is(database: Database, lab: Api, jobs: EvaluationJobs):
    job = await queued(lab)
    await jobs.run_next()
    evaluations = Evaluations(database)
    assert not await evaluations.fail(job["evaluation_id"], "me", "no")
    assert (await evaluations.cancel(job["evaluation_id"], UNNAMED)).status.value == "done"
