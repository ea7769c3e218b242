"""The middleware of a guarded app: which callers pass, and how others are refused."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import Response

from service.auth.keys import RateLimit, Scope
from service.auth.tenants import TenantScope
from service.storage.keys import Keys
from tests.support.api import CONTEXT, DOSES, Api, running_api
from tests.support.keys import ALL, bearer, make_key
from tests.support.waiting import eventually

KEYLESS = ("/healthz", "/readyz", "/problems/overloaded", "/", "/docs", "/openapi.json")
CANARY = "canary-7331"


@pytest.fixture
async def key(url: str) -> str:
    return await make_key(url, TenantScope())


@pytest.fixture
async def guarded(url: str, key: str) -> AsyncIterator[Api]:
    """A guarded app with the experiment `doses`; its client sends no key by default."""
    async with running_api(url, auth="required", key_poll_seconds=0.01) as api:
        made = await api.http.post("/experiments", json=DOSES, headers=bearer(key))
        assert made.status_code == 201, made.text
        yield api


@pytest.mark.parametrize("path", KEYLESS)
async def test_routes_without_tenant_data_need_no_key(guarded: Api, path: str):
    for headers in ({}, bearer(CANARY)):
        answer = await guarded.http.get(path, headers=headers)
        assert answer.status_code == (307 if path == "/" else 200)


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Bearer ", f"Bearer {CANARY}", f"Basic {CANARY}", CANARY, "Bearer é"]
)
async def test_a_key_that_is_none_is_refused_and_never_quoted(guarded: Api, value: str):
    headers = {b"authorization": value.encode("latin-1"), b"x-request-id": b"mine-1"}
    answer = await guarded.http.get("/experiments", headers=headers)
    assert (answer.status_code, answer.json()["type"]) == (401, "/problems/key-refused")
    assert 'error="invalid_token"' in answer.headers["www-authenticate"]
    assert answer.json()["request_id"] == "mine-1"
    assert CANARY not in answer.text


async def test_the_scheme_is_written_in_any_case(guarded: Api, key: str):
    for scheme in ("bearer", "BEARER", "Bearer "):
        headers = {"Authorization": f"{scheme} {key}"}
        assert (await guarded.http.get("/experiments", headers=headers)).status_code == 200


async def test_an_unknown_key_is_refused_before_the_body_is_read(guarded: Api):
    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("nobody may read this")
        yield b""

    answer = await guarded.http.post("/select", content=body())
    assert answer.status_code == 401
    assert answer.headers["connection"] == "close"


async def test_a_route_without_an_entry_is_shut_even_for_the_operator(guarded: Api, key: str):
    async def forgotten() -> Response:
        return Response(CANARY)

    guarded.app.add_api_route("/forgotten", forgotten)
    guarded.app.add_api_route("/select", forgotten, methods=["PUT"])
    unknown = await guarded.http.get("/forgotten", headers=bearer(key))
    method = await guarded.http.put("/select", headers=bearer(key))
    assert (unknown.status_code, method.status_code) == (404, 405)
    assert method.headers["allow"] == "POST"
    assert CANARY not in unknown.text + method.text
    assert (await guarded.http.get("/forgotten")).status_code == 401


async def test_metrics_are_for_the_operator(url: str, key: str):
    tenant = await make_key(url, TenantScope("acme"))
    async with running_api(url, auth="required") as api:
        statuses = [
            (await api.http.get("/metrics", headers=headers)).status_code
            for headers in ({}, bearer(tenant), bearer(key))
        ]
        refused = await api.http.get("/metrics", headers=bearer(tenant))
    assert statuses == [401, 403, 200]
    assert refused.json()["scope"] == "operator"
    async with running_api(url, auth="required", metrics_open=True) as api:
        assert (await api.http.get("/metrics")).status_code == 200


async def test_a_limit_is_answered_with_when_to_come_again(url: str):
    slow = await make_key(url, TenantScope(), ALL, RateLimit(0.1, 3))
    other = await make_key(url, TenantScope())
    async with running_api(url, auth="required") as api:
        answers = [await api.http.get("/experiments", headers=bearer(slow)) for _ in range(4)]
        assert [each.status_code for each in answers] == [200, 200, 200, 429]
        assert answers[3].json()["type"] == "/problems/rate-limited"
        assert 1 <= int(answers[3].headers["retry-after"]) <= 10
        assert (await api.http.get("/experiments", headers=bearer(other))).status_code == 200


async def test_a_key_changed_by_another_process_is_noticed(guarded: Api, url: str):
    keys = Keys(guarded.services.database)
    key = await make_key(url, TenantScope())

    async def status() -> int:
        return (await guarded.http.get("/experiments", headers=bearer(key))).status_code

    async def is_in() -> bool:
        return await status() == 200

    async def is_out() -> bool:
        return await status() == 401

    await eventually(is_in)
    await keys.revoke(key.split("_")[1], "test")
    await eventually(is_out)


async def test_no_request_reads_the_keys(guarded: Api, key: str, monkeypatch: Any):
    async def read(*_: object) -> None:
        raise AssertionError("the database was asked")

    asked = {"experiment": "doses", "contexts": [CONTEXT]}
    first = await guarded.http.post("/target/select", json=asked, headers=bearer(key))
    monkeypatch.setattr(guarded.services.database, "read", read)
    again = await guarded.http.post("/target/select", json=asked, headers=bearer(key))
    assert (first.status_code, again.json()) == (200, first.json())


async def test_a_key_without_the_scope_is_refused_with_the_scope_it_lacks(guarded: Api, url: str):
    key = await make_key(url, TenantScope(), frozenset({Scope.SELECT}))

    async def is_known() -> bool:
        return (await guarded.http.get("/experiments", headers=bearer(key))).status_code == 200

    await eventually(is_known)
    answer = await guarded.http.post("/reward", headers=bearer(key))
    assert (answer.status_code, answer.json()["scope"]) == (403, "reward")
    assert "connection" not in answer.headers
