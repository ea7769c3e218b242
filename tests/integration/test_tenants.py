"""A caller without access to an object learns nothing about it, on any documented route.

A route that is not in one of the three sets below fails a test: it cannot be forgotten.
"""

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from model.learner import Learner
from model.state.snapshot import to_bytes
from service.app import create_app
from service.auth.access import ROUTES, Access
from service.auth.keys import Scope
from service.auth.tenants import TenantScope
from service.errors import KeyRequired
from service.experiment_spec import ExperimentSpec
from service.records import NewSnapshot
from service.settings import Settings
from service.storage.leases import Leases
from tests.support.api import CONTEXT, DOSES, OTHER_CONTEXT, Api, running_api
from tests.support.keys import ALL, bearer, make_key
from tests.support.storage import sqlite_url

ACME = TenantScope("acme")
SPEC = ExperimentSpec.from_json("doses", json.dumps(DOSES))
BLOB = to_bytes(Learner(SPEC.bandit_config(), SPEC.seed), 2, with_contexts=False)
PASSED = (200, 201, 202, 409)  # what the owner gets; 409: the evaluation is not finished
VARYING_HEADERS = ("x-request-id", "content-length")


@dataclass(frozen=True)
class Resources:
    """What requests can be about."""

    experiment: str
    decision_id: str
    evaluation_id: str

    def path(self, template: str) -> str:
        known = {
            "name": self.experiment,
            "decision_id": self.decision_id,
            "evaluation_id": self.evaluation_id,
            "version": "1",
            "episode": "1",
            "key": self.experiment,
        }
        return re.sub(r"{(\w+)}", lambda match: known[match[1]], template)


LOG = (
    json.dumps(
        {"format": "daband-log", "arms": ["a"], "context_kind": "shared", "context_shape": [1]}
    )
    + "\n"
)
NOTHING = Resources("nobody", "no-decision", "no-evaluation")
Request = Callable[[Resources], dict[str, Any]]


def select(resources: Resources) -> dict[str, Any]:
    sides = {"source": {"context": CONTEXT}, "target": {"context": CONTEXT}}
    return {"json": {"experiment": resources.experiment, "request_id": "r-1", **sides}}


def bare(resources: Resources) -> dict[str, Any]:
    return {}


def infer(resources: Resources) -> dict[str, Any]:
    context = {"name": "context", "shape": [1, 4], "datatype": "FP32", "data": CONTEXT}
    return {"json": {"inputs": [context]}}


ABOUT_A_RESOURCE: dict[tuple[str, str], Request] = {
    ("POST", "/select"): select,
    ("POST", "/select/batch"): lambda resources: {
        "json": {
            "experiment": resources.experiment,
            "rounds": [{"request_id": "r-1", "source": {"context": CONTEXT}}],
        }
    },
    ("POST", "/reward"): lambda resources: {
        "json": {"decision_id": resources.decision_id, "reward": 1.0}
    },
    ("POST", "/reward/batch"): lambda resources: {
        "json": {"rewards": [{"decision_id": resources.decision_id, "reward": 1.0}]}
    },
    ("POST", "/target/select"): lambda resources: {
        "json": {
            "experiment": resources.experiment,
            "contexts": [CONTEXT],
            "store": True,
            "request_id": "t-1",
        }
    },
    ("POST", "/target/contexts"): lambda resources: {
        "params": {"experiment": resources.experiment, "request_id": "u-1"},
        "content": json.dumps(CONTEXT),
        "headers": {"Content-Type": "application/x-ndjson"},
    },
    ("GET", "/experiments/{name}"): bare,
    ("PATCH", "/experiments/{name}"): lambda _: {"json": {"status": "paused"}},
    ("DELETE", "/experiments/{name}"): lambda resources: {
        "params": {"confirm": resources.experiment}
    },
    ("POST", "/experiments/{name}/phase"): lambda _: {"json": {"phase": "continued"}},
    ("POST", "/experiments/{name}/train"): bare,
    ("POST", "/experiments/{name}/history"): lambda _: {
        "params": {"arm": "dose", "reward": "gain"},
        "content": f"a,b,c,d,dose,gain\n{','.join(map(str, CONTEXT))},{DOSES['arms'][0]},1\n",
        "headers": {"Content-Type": "text/csv"},
    },
    ("GET", "/experiments/{name}/state"): bare,
    ("GET", "/experiments/{name}/log"): bare,
    ("GET", "/experiments/{name}/log/export"): bare,
    ("GET", "/experiments/{name}/decisions/{decision_id}"): bare,
    ("POST", "/experiments/{name}/nearest"): lambda _: {"json": {"context": CONTEXT}},
    ("GET", "/experiments/{name}/learning"): bare,
    ("GET", "/experiments/{name}/latents"): bare,
    ("GET", "/experiments/{name}/transfer"): bare,
    ("GET", "/experiments/{name}/report"): bare,
    ("GET", "/experiments/{name}/audit"): bare,
    ("GET", "/experiments/{name}/snapshots"): bare,
    ("POST", "/experiments/{name}/snapshots/{version}/restore"): bare,
    ("GET", "/experiments/{name}/snapshots/{version}/policy"): bare,
    ("GET", "/experiments/{name}/candidates"): bare,
    ("POST", "/experiments/{name}/candidates/{episode}/promote"): bare,
    ("GET", "/experiments/{name}/candidates/{episode}/policy"): bare,
    ("GET", "/v2/models/{name}"): bare,
    ("GET", "/v2/models/{name}/ready"): bare,
    ("POST", "/v2/models/{name}/infer"): infer,
    ("GET", "/v2/models/{name}/versions/{version}"): bare,
    ("GET", "/v2/models/{name}/versions/{version}/ready"): bare,
    ("POST", "/v2/models/{name}/versions/{version}/infer"): infer,
    ("POST", "/ofrep/v1/evaluate/flags/{key}"): lambda _: {
        "json": {"context": {"targetingKey": "ada", "context": CONTEXT}}
    },
    ("POST", "/evaluations"): lambda resources: {
        "json": {
            "experiment": resources.experiment,
            "request_id": "e-1",
            "candidates": [{"kind": "uniform"}],
        }
    },
    ("POST", "/evaluations/file"): lambda resources: {
        "params": {"experiment": resources.experiment, "candidate": "uniform"},
        "content": LOG,
    },
    ("GET", "/evaluations/{evaluation_id}"): bare,
    ("POST", "/evaluations/{evaluation_id}/cancel"): bare,
    ("GET", "/evaluations/{evaluation_id}/report"): bare,
}
ABOUT_ALL = {
    ("GET", "/audit"),
    ("POST", "/ofrep/v1/evaluate/flags"),
    ("GET", "/experiments"),
    ("POST", "/experiments"),
    ("GET", "/evaluations"),
}
ABOUT_THE_SERVICE = {
    ("GET", path) for path in ("/healthz", "/readyz", "/metrics", "/problems/{slug}")
} | {("GET", path) for path in ("/v2", "/v2/health/live", "/v2/health/ready")}


@dataclass(frozen=True)
class Prepared:
    """What the tenant acme has, and keys: its own, those of others, and own ones that lack a scope."""

    resources: Resources
    owner: str
    other_keys: dict[str, str]
    keys_without: dict[Scope, str]


@dataclass(frozen=True)
class GuardedApi:
    """An app that needs keys, with what it holds."""

    api: Api
    prepared: Prepared

    async def ask(
        self, key: str | None, method: str, template: str, resources: Resources
    ) -> httpx.Response:
        request = ABOUT_A_RESOURCE[method, template](resources)
        headers = request.pop("headers", {}) | (bearer(key) if key else {})
        return await self.api.http.request(
            method, resources.path(template), headers=headers, **request
        )

    async def last_offset(self) -> int:
        return await self.api.last_offset("acme/doses")


async def prepare(url: str) -> Prepared:
    """Give acme an experiment with a decision, a snapshot, a candidate and an evaluation."""
    owner = await make_key(url, ACME)
    other_keys = {
        "of another tenant": await make_key(url, TenantScope("zenith")),
        "of the unnamed tenant": await make_key(url, TenantScope()),
        "for other experiments": await make_key(url, TenantScope("acme", frozenset({"offers"}))),
        "of a tenant by another spelling": await make_key(url, TenantScope("ACME")),
    }
    keys_without = {each: await make_key(url, ACME, ALL - {each}) for each in Scope}
    async with running_api(url, auth="required") as api:
        api.http.headers.update(bearer(owner))
        assert (await api.http.post("/experiments", json=DOSES)).status_code == 201
        decision_id = await api.decide(request_id="r-0")
        asked = {"experiment": "doses", "candidates": [{"kind": "uniform"}]}
        evaluation = (await api.http.post("/evaluations", json=asked)).json()
        await save_encoders(api)
    resources = Resources("doses", decision_id, evaluation["evaluation_id"])
    return Prepared(resources, owner, other_keys, keys_without)


async def save_encoders(api: Api) -> None:
    experiment_id = (await api.services.experiments.get("acme/doses")).experiment_id
    lease = await Leases(api.services.database).acquire(experiment_id, "me")
    assert lease is not None
    snapshot = NewSnapshot(0, 0, "sha256:0", BLOB)
    await api.services.snapshots.save(
        experiment_id, epoch=lease.epoch, expected_version=0, snapshot=snapshot
    )
    await api.services.candidates.save(
        experiment_id, 1, BLOB, {"is_accepted": False}, epoch=lease.epoch, keep=5
    )


@pytest.fixture(scope="module")
def prepared_file(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Prepared]:
    path = tmp_path_factory.mktemp("tenants") / "daband.db"
    shutil.copy(sqlite_template, path)
    return path, asyncio.run(prepare(sqlite_url(path)))


@pytest.fixture
async def guarded(
    prepared_file: tuple[Path, Prepared], tmp_path: Path
) -> AsyncIterator[GuardedApi]:
    original, prepared = prepared_file
    path = tmp_path / "daband.db"
    shutil.copy(original, path)
    async with running_api(sqlite_url(path), auth="required") as api:
        yield GuardedApi(api, prepared)


def plain(answer: httpx.Response) -> tuple[int, dict[str, str], str]:
    """An answer without what differs from request to request."""
    headers = {name: v for name, v in answer.headers.items() if name not in VARYING_HEADERS}
    request_id = answer.headers["x-request-id"]
    return answer.status_code, headers, answer.text.replace(request_id, "…")


def detail_of(answer: httpx.Response) -> str:
    """The text of an error, in the shape of its protocol."""
    body = answer.json()
    return str(body.get("detail") or body.get("error") or body["errorDetails"])


def test_every_route_is_in_one_of_the_sets():
    paths = create_app(Settings()).openapi()["paths"]
    described = {(method.upper(), path) for path in paths for method in paths[path]}
    assert described == ABOUT_A_RESOURCE.keys() | ABOUT_ALL | ABOUT_THE_SERVICE


@pytest.mark.parametrize(("method", "path"), ABOUT_A_RESOURCE)
async def test_objects_of_others_are_as_unknown_as_missing_ones(
    guarded: GuardedApi, method: str, path: str
):
    head, resources = await guarded.last_offset(), guarded.prepared.resources
    for whose, key in guarded.prepared.other_keys.items():
        theirs = plain(await guarded.ask(key, method, path, resources))
        status, headers, text = plain(await guarded.ask(key, method, path, NOTHING))
        text = text.replace(NOTHING.experiment, resources.experiment)
        assert theirs == (status, headers, text.replace(NOTHING.decision_id, resources.decision_id))
        assert "There is no " in text, whose
        assert status == (200 if path == "/reward/batch" else 404), whose
    assert await guarded.last_offset() == head
    owners = await guarded.ask(guarded.prepared.owner, method, path, resources)
    assert owners.status_code in PASSED, owners.text
    assert "acme" not in f"{owners.headers}{owners.text}"


@pytest.mark.parametrize(("method", "path"), sorted({*ABOUT_A_RESOURCE, *ABOUT_ALL}))
async def test_a_key_is_needed_and_the_right_scope(guarded: GuardedApi, method: str, path: str):
    url, http = guarded.prepared.resources.path(path), guarded.api.http
    anonymous = await http.request(method, url)
    assert anonymous.status_code == 401
    assert KeyRequired.default_detail() in detail_of(anonymous)
    assert anonymous.headers["www-authenticate"] == 'Bearer realm="daband"'
    access = ROUTES[path][method]
    if access is not Access.ANY_KEY:
        weak = bearer(guarded.prepared.keys_without[Scope(access)])
        refused = await http.request(method, url, headers=weak)
        assert refused.status_code == 403
        lacking = (
            "is not the operator's" if access is Access.OPERATOR else f"lacks the scope `{access}`"
        )
        assert f"The key does not allow this: it {lacking}." in detail_of(refused)
        if "scope" in refused.json():
            assert refused.json()["scope"] == access.value


async def test_lists_hold_only_what_the_caller_may_see(guarded: GuardedApi):
    prepared, http = guarded.prepared, guarded.api.http
    for key, count in ((prepared.owner, 1), *((each, 0) for each in prepared.other_keys.values())):
        experiments = (await http.get("/experiments", headers=bearer(key))).json()
        evaluations = (await http.get("/evaluations", headers=bearer(key))).json()
        found = len(experiments["experiments"]), len(evaluations["evaluations"])
        assert found == (count, count)


async def test_the_same_name_is_free_for_every_tenant(guarded: GuardedApi):
    prepared, http = guarded.prepared, guarded.api.http
    other_keys = dict(prepared.other_keys)
    refused = bearer(other_keys.pop("for other experiments"))
    for name in ("doses", "nothing-of-the-kind"):
        answer = await http.post("/experiments", json={**DOSES, "name": name}, headers=refused)
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/not-granted")
    for key in other_keys.values():
        for status in (201, 409):
            answer = await http.post("/experiments", json=DOSES, headers=bearer(key))
            assert answer.status_code == status


async def test_ids_of_requests_never_meet_those_of_another_tenant(guarded: GuardedApi):
    prepared, http = guarded.prepared, guarded.api.http
    zenith = prepared.other_keys["of another tenant"]
    await http.post("/experiments", json=DOSES, headers=bearer(zenith))
    answers = []
    for key, context in ((prepared.owner, CONTEXT), (zenith, OTHER_CONTEXT)):
        asked = {"experiment": "doses", "request_id": "r-9", "source": {"context": context}}
        answer = await http.post("/select", json=asked, headers=bearer(key))
        assert answer.status_code == 200
        assert "idempotent-replayed" not in answer.headers
        answers.append(answer.json()["source"]["decision_id"])
    assert len(set(answers)) == 2


async def test_a_key_cannot_leave_its_tenant_by_a_name(guarded: GuardedApi):
    prepared, http = guarded.prepared, guarded.api.http
    key = bearer(prepared.other_keys["of the unnamed tenant"])
    for asked in ({"experiment": "acme/doses"}, {"experiment": "nobody/doses"}):
        body = {**asked, "source": {"context": CONTEXT}}
        answer = await http.post("/select", json=body, headers=key)
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-experiment")
    assert (await http.get("/experiments/acme%2Fdoses", headers=key)).status_code == 404


async def test_acts_by_hand_tell_which_key_they_came_with(guarded: GuardedApi):
    owner, http = bearer(guarded.prepared.owner), guarded.api.http
    await http.post("/experiments/doses/phase", json={"phase": "continued"}, headers=owner)
    await http.post("/experiments/doses/snapshots/1/restore", headers=owner)
    await http.post("/experiments/doses/candidates/1/promote", headers=owner)
    entries = (await http.get("/experiments/doses/audit", headers=owner)).json()["entries"]
    key_id = guarded.prepared.owner.split("_")[1]
    received = [(each["what"], each["details"]["key_id"]) for each in entries]
    acts = ("phase_changed", "version_restored", "encoder_promoted")
    assert received == [(act, key_id) for act in acts]


async def test_the_audit_trail_holds_the_callers_acts_alone(guarded: GuardedApi):
    prepared, http = guarded.prepared, guarded.api.http
    owner = bearer(prepared.owner)
    await http.patch("/experiments/doses", json={"status": "paused"}, headers=owner)
    await http.delete("/experiments/doses?confirm=doses", headers=owner)
    entries = (await http.get("/audit", headers=owner)).json()["entries"]
    assert [each["what"] for each in entries] == ["deleted", "paused"]
    assert {each["key_id"] for each in entries} == {prepared.owner.split("_")[1]}
    for whose, key in prepared.other_keys.items():
        assert (await http.get("/audit", headers=bearer(key))).json() == {"entries": []}, whose
