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
from service.errors import KeyRequired, NotGranted
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
STRANGE_HEADERS = ("x-request-id", "content-length")


@dataclass(frozen=True)
class Things:
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


NOTHING = Things("nobody", "no-decision", "no-evaluation")
Request = Callable[[Things], dict[str, Any]]


def select(things: Things) -> dict[str, Any]:
    sides = {"source": {"context": CONTEXT}, "target": {"context": CONTEXT}}
    return {"json": {"experiment": things.experiment, "request_id": "r-1", **sides}}


def bare(things: Things) -> dict[str, Any]:
    return {}


def infer(things: Things) -> dict[str, Any]:
    context = {"name": "context", "shape": [1, 4], "datatype": "FP32", "data": CONTEXT}
    return {"json": {"inputs": [context]}}


ABOUT_A_THING: dict[tuple[str, str], Request] = {
    ("POST", "/select"): select,
    ("POST", "/select/batch"): lambda things: {
        "json": {
            "experiment": things.experiment,
            "rounds": [{"request_id": "r-1", "source": {"context": CONTEXT}}],
        }
    },
    ("POST", "/reward"): lambda things: {
        "json": {"decision_id": things.decision_id, "reward": 1.0}
    },
    ("POST", "/reward/batch"): lambda things: {
        "json": {"rewards": [{"decision_id": things.decision_id, "reward": 1.0}]}
    },
    ("POST", "/target/select"): lambda things: {
        "json": {
            "experiment": things.experiment,
            "contexts": [CONTEXT],
            "store": True,
            "request_id": "t-1",
        }
    },
    ("POST", "/target/contexts"): lambda things: {
        "params": {"experiment": things.experiment, "request_id": "u-1"},
        "content": json.dumps(CONTEXT),
        "headers": {"Content-Type": "application/x-ndjson"},
    },
    ("GET", "/experiments/{name}"): bare,
    ("PATCH", "/experiments/{name}"): lambda _: {"json": {"status": "paused"}},
    ("DELETE", "/experiments/{name}"): lambda things: {"params": {"confirm": things.experiment}},
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
    ("POST", "/evaluations"): lambda things: {
        "json": {
            "experiment": things.experiment,
            "request_id": "e-1",
            "candidates": [{"kind": "uniform"}],
        }
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
class Furniture:
    """What the tenant acme has, and keys: its own, strangers', and own ones that lack a scope."""

    things: Things
    owner: str
    strangers: dict[str, str]
    weak: dict[Scope, str]


@dataclass(frozen=True)
class Laboratory:
    """A guarded app, furnished."""

    api: Api
    furniture: Furniture

    async def ask(
        self, key: str | None, method: str, template: str, things: Things
    ) -> httpx.Response:
        request = ABOUT_A_THING[method, template](things)
        headers = request.pop("headers", {}) | (bearer(key) if key else {})
        return await self.api.http.request(
            method, things.path(template), headers=headers, **request
        )

    async def last_offset(self) -> int:
        return await self.api.last_offset("acme/doses")


async def furnish(url: str) -> Furniture:
    """Give acme an experiment with a decision, a snapshot, a candidate and an evaluation."""
    owner = await make_key(url, ACME)
    strangers = {
        "of another tenant": await make_key(url, TenantScope("zenith")),
        "of the unnamed tenant": await make_key(url, TenantScope()),
        "for other experiments": await make_key(url, TenantScope("acme", frozenset({"offers"}))),
        "of a tenant by another spelling": await make_key(url, TenantScope("ACME")),
    }
    weak = {each: await make_key(url, ACME, ALL - {each}) for each in Scope}
    async with running_api(url, auth="required") as api:
        api.http.headers.update(bearer(owner))
        assert (await api.http.post("/experiments", json=DOSES)).status_code == 201
        decision_id = await api.decide(request_id="r-0")
        asked = {"experiment": "doses", "candidates": [{"kind": "uniform"}]}
        evaluation = (await api.http.post("/evaluations", json=asked)).json()
        await save_encoders(api)
    things = Things("doses", decision_id, evaluation["evaluation_id"])
    return Furniture(things, owner, strangers, weak)


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
def furnished(
    sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Furniture]:
    path = tmp_path_factory.mktemp("tenants") / "daband.db"
    shutil.copy(sqlite_template, path)
    return path, asyncio.run(furnish(sqlite_url(path)))


@pytest.fixture
async def laboratory(
    furnished: tuple[Path, Furniture], tmp_path: Path
) -> AsyncIterator[Laboratory]:
    original, furniture = furnished
    path = tmp_path / "daband.db"
    shutil.copy(original, path)
    async with running_api(sqlite_url(path), auth="required") as api:
        yield Laboratory(api, furniture)


def plain(answer: httpx.Response) -> tuple[int, dict[str, str], str]:
    """An answer without what differs from request to request."""
    headers = {name: v for name, v in answer.headers.items() if name not in STRANGE_HEADERS}
    request_id = answer.headers["x-request-id"]
    return answer.status_code, headers, answer.text.replace(request_id, "…")


def said(answer: httpx.Response) -> str:
    """The text of an error, in the shape of its protocol."""
    body = answer.json()
    return str(body.get("detail") or body.get("error") or body["errorDetails"])


def test_every_route_is_in_one_of_the_sets():
    paths = create_app(Settings()).openapi()["paths"]
    described = {(method.upper(), path) for path in paths for method in paths[path]}
    assert described == ABOUT_A_THING.keys() | ABOUT_ALL | ABOUT_THE_SERVICE


@pytest.mark.parametrize(("method", "path"), ABOUT_A_THING)
async def test_what_is_not_the_callers_is_as_unknown_as_what_is_not_there(
    laboratory: Laboratory, method: str, path: str
):
    head, things = await laboratory.last_offset(), laboratory.furniture.things
    for whose, key in laboratory.furniture.strangers.items():
        theirs = plain(await laboratory.ask(key, method, path, things))
        status, headers, text = plain(await laboratory.ask(key, method, path, NOTHING))
        text = text.replace(NOTHING.experiment, things.experiment)
        assert theirs == (status, headers, text.replace(NOTHING.decision_id, things.decision_id))
        assert "There is no " in text, whose
        assert status == (200 if path == "/reward/batch" else 404), whose
    assert await laboratory.last_offset() == head
    owners = await laboratory.ask(laboratory.furniture.owner, method, path, things)
    assert owners.status_code in PASSED, owners.text
    assert "acme" not in f"{owners.headers}{owners.text}"


@pytest.mark.parametrize(("method", "path"), sorted({*ABOUT_A_THING, *ABOUT_ALL}))
async def test_a_key_is_needed_and_the_right_scope(laboratory: Laboratory, method: str, path: str):
    url, http = laboratory.furniture.things.path(path), laboratory.api.http
    strange = await http.request(method, url)
    assert strange.status_code == 401
    assert KeyRequired.default_detail() in said(strange)
    assert strange.headers["www-authenticate"] == 'Bearer realm="daband"'
    access = ROUTES[path][method]
    if access is not Access.ANY_KEY:
        weak = bearer(laboratory.furniture.weak[Scope(access)])
        refused = await http.request(method, url, headers=weak)
        assert refused.status_code == 403
        assert NotGranted.default_detail() in said(refused)
        if "scope" in refused.json():
            assert refused.json()["scope"] == access.value


async def test_lists_hold_the_callers_things_alone(laboratory: Laboratory):
    furniture, http = laboratory.furniture, laboratory.api.http
    for key, count in ((furniture.owner, 1), *((each, 0) for each in furniture.strangers.values())):
        experiments = (await http.get("/experiments", headers=bearer(key))).json()
        evaluations = (await http.get("/evaluations", headers=bearer(key))).json()
        found = len(experiments["experiments"]), len(evaluations["evaluations"])
        assert found == (count, count)


async def test_the_same_name_is_free_for_every_tenant(laboratory: Laboratory):
    furniture, http = laboratory.furniture, laboratory.api.http
    strangers = dict(furniture.strangers)
    refused = bearer(strangers.pop("for other experiments"))
    for name in ("doses", "nothing-of-the-kind"):
        answer = await http.post("/experiments", json={**DOSES, "name": name}, headers=refused)
        assert (answer.status_code, answer.json()["type"]) == (403, "/problems/not-granted")
    for key in strangers.values():
        for status in (201, 409):
            answer = await http.post("/experiments", json=DOSES, headers=bearer(key))
            assert answer.status_code == status


async def test_ids_of_requests_never_meet_those_of_another_tenant(laboratory: Laboratory):
    furniture, http = laboratory.furniture, laboratory.api.http
    zenith = furniture.strangers["of another tenant"]
    await http.post("/experiments", json=DOSES, headers=bearer(zenith))
    answers = []
    for key, context in ((furniture.owner, CONTEXT), (zenith, OTHER_CONTEXT)):
        asked = {"experiment": "doses", "request_id": "r-9", "source": {"context": context}}
        answer = await http.post("/select", json=asked, headers=bearer(key))
        assert answer.status_code == 200
        assert "idempotent-replayed" not in answer.headers
        answers.append(answer.json()["source"]["decision_id"])
    assert len(set(answers)) == 2


async def test_a_key_cannot_leave_its_tenant_by_a_name(laboratory: Laboratory):
    furniture, http = laboratory.furniture, laboratory.api.http
    key = bearer(furniture.strangers["of the unnamed tenant"])
    for asked in ({"experiment": "acme/doses"}, {"experiment": "nobody/doses"}):
        body = {**asked, "source": {"context": CONTEXT}}
        answer = await http.post("/select", json=body, headers=key)
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-experiment")
    assert (await http.get("/experiments/acme%2Fdoses", headers=key)).status_code == 404


async def test_acts_by_hand_tell_which_key_they_came_with(laboratory: Laboratory):
    owner, http = bearer(laboratory.furniture.owner), laboratory.api.http
    await http.post("/experiments/doses/phase", json={"phase": "continued"}, headers=owner)
    await http.post("/experiments/doses/snapshots/1/restore", headers=owner)
    await http.post("/experiments/doses/candidates/1/promote", headers=owner)
    entries = (await http.get("/experiments/doses/audit", headers=owner)).json()["entries"]
    key_id = laboratory.furniture.owner.split("_")[1]
    received = [(each["what"], each["details"]["key_id"]) for each in entries]
    acts = ("phase_changed", "version_restored", "encoder_promoted")
    assert received == [(act, key_id) for act in acts]


async def test_the_audit_trail_holds_the_callers_acts_alone(laboratory: Laboratory):
    furniture, http = laboratory.furniture, laboratory.api.http
    owner = bearer(furniture.owner)
    await http.patch("/experiments/doses", json={"status": "paused"}, headers=owner)
    await http.delete("/experiments/doses?confirm=doses", headers=owner)
    entries = (await http.get("/audit", headers=owner)).json()["entries"]
    assert [each["what"] for each in entries] == ["deleted", "paused"]
    assert {each["key_id"] for each in entries} == {furniture.owner.split("_")[1]}
    for whose, key in furniture.strangers.items():
        assert (await http.get("/audit", headers=bearer(key))).json() == {"entries": []}, whose
