"""Logging in, and what a session may see and do: what its key may, and not longer."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from service.auth.keys import Scope, digest
from service.auth.sessions import COOKIE
from service.auth.tenants import TenantScope
from service.storage.keys import EndedSessions, Keys
from tests.support.api import CONTEXT, DOSES, Api, running_api
from tests.support.keys import ALL, bearer, make_key
from tests.support.waiting import eventually

OWN = {"Origin": "http://test"}
PAUSE = {"act": "pause", "reason": "a new batch"}
PLACE = "/console/experiments/doses"
SELECT = {"experiment": "doses", "source": {"context": CONTEXT}}


@pytest.fixture
async def key(url: str) -> str:
    return await make_key(url, TenantScope("acme"))


@pytest.fixture
async def guarded(url: str, key: str) -> AsyncIterator[Api]:
    async with running_api(url, auth="required", key_poll_seconds=0.01) as api:
        made = await api.http.post("/experiments", json=DOSES, headers=bearer(key))
        assert made.status_code == 201, made.text
        yield api


async def log_in(api: Api, key: str, **form: str) -> httpx.Response:
    return await api.http.post("/console/login", data={"key": key, **form}, headers=OWN)


async def status(api: Api) -> str:
    found = await api.services.experiments.get("acme/doses")
    return found.status.value


async def test_without_a_session_every_page_leads_to_the_login(guarded: Api):
    for path in ("/console", PLACE, f"{PLACE}/log", "/console/system"):
        answer = await guarded.http.get(path)
        assert (answer.status_code, answer.headers["location"]) == (
            303,
            f"/console/login?next={path}",
        )
    poll = await guarded.http.get(f"{PLACE}/live", headers={"HX-Request": "true"})
    assert (poll.status_code, poll.headers["hx-redirect"]) == (401, "/console/login")
    act = await guarded.http.post(f"{PLACE}/act", data=PAUSE, headers=OWN)
    assert (act.status_code, act.headers["location"]) == (303, "/console/login")
    assert await status(guarded) == "active"


async def test_a_key_is_no_session_and_a_session_no_key(guarded: Api, key: str):
    assert (await guarded.http.get(PLACE, headers=bearer(key))).status_code == 303
    await log_in(guarded, key)
    assert (await guarded.http.get(PLACE)).status_code == 200
    assert (await guarded.http.get("/experiments")).status_code == 401


async def test_the_cookie_is_for_this_site_and_no_script(guarded: Api, key: str):
    answer = await log_in(guarded, f" {key} ", next=PLACE)
    assert (answer.status_code, answer.headers["location"]) == (303, PLACE)
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=28800"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert key.split("_")[2] not in cookie
    headers = {"Origin": "https://test"}
    secure = await guarded.http.post("/console/login", data={"key": key}, headers=headers)
    assert "Secure" in secure.headers["set-cookie"]


@pytest.mark.parametrize(
    "place", ["https://evil.example", "//evil.example", "/console//evil", "/console/\\e", "/docs"]
)
async def test_a_login_leads_nowhere_else(guarded: Api, key: str, place: str):
    assert (await log_in(guarded, key, next=place)).headers["location"] == "/console"


async def test_a_wrong_key_is_refused_and_not_quoted(guarded: Api):
    answer = await log_in(guarded, "daband_wrong_canary")
    assert (answer.status_code, COOKIE in answer.cookies) == (401, False)
    assert "The key is wrong" in answer.text
    assert "canary" not in answer.text


async def test_logging_out_removes_the_cookie(guarded: Api, key: str):
    await log_in(guarded, key)
    page = await guarded.http.get("/console")
    assert "Log out" in page.text
    await guarded.http.post("/console/logout", headers=OWN)
    assert (await guarded.http.get("/console")).status_code == 303


async def opened(api: Api, token: str) -> int:
    """How a page answers to a token, whoever kept it."""
    api.http.cookies.clear()
    return (await api.http.get("/console", headers={"Cookie": f"{COOKIE}={token}"})).status_code


async def test_logging_out_ends_every_copy_of_the_session_and_no_other(url: str, key: str):
    shared: dict[str, Any] = {"auth": "required", "console_signing_key": "signs" * 8}
    async with running_api(url, **shared) as one, running_api(url, **shared) as other:
        first, second = [(await log_in(one, key)).cookies[COOKIE] for _ in range(2)]
        assert [await opened(api, first) for api in (one, other)] == [200, 200]
        left = {**OWN, "Cookie": f"{COOKIE}={first}"}
        for _ in range(2):
            assert (await one.http.post("/console/logout", headers=left)).status_code == 303
        assert [await opened(api, first) for api in (one, other)] == [303, 303]
        assert [await opened(api, second) for api in (one, other)] == [200, 200]


async def test_only_sessions_are_ended(guarded: Api):
    for cookie in ({}, {"Cookie": f"{COOKIE}=a.9999999999.b.c"}):
        answer = await guarded.http.post("/console/logout", headers={**OWN, **cookie})
        assert answer.status_code == 303
    ended = EndedSessions(guarded.services.database)
    assert not await ended.has(digest("a.9999999999.b.c"))


@pytest.mark.parametrize(
    "headers",
    [{}, {"Origin": "https://evil.example"}, {"Origin": "null"}, {"Origin": "http://test:81"}],
)
async def test_a_form_of_another_site_is_refused(guarded: Api, key: str, headers: dict[str, str]):
    await log_in(guarded, key)
    answer = await guarded.http.post(f"{PLACE}/act", data=PAUSE, headers=headers)
    assert answer.status_code == 403
    assert "sent this; nothing was done" in answer.text
    again = await guarded.http.post("/console/login", data={"key": key}, headers=headers)
    assert (again.status_code, "set-cookie" in again.headers) == (403, False)
    assert await status(guarded) == "active"


async def test_another_tenant_sees_and_changes_nothing(guarded: Api, url: str, key: str):
    other = await make_key(url, TenantScope("other"))
    await eventually(lambda: is_in(guarded, other))
    assert "doses" not in (await guarded.http.get("/console")).text
    decision = (await guarded.http.post("/select", json=SELECT, headers=bearer(key))).json()
    for path in (
        *("", "/live", "/latents", "/report", "/target", "/log", "/log/export", "/history"),
        *("/evaluations", "/evaluations/1", f"/log/{decision['source']['decision_id']}"),
    ):
        assert (await guarded.http.get(PLACE + path)).status_code == 404, path
    asked = await guarded.http.get("/console/importing?name=doses")
    assert (asked.status_code, asked.text) == (204, "")
    sent: dict[str, dict[str, str]] = {
        "/act": PAUSE,
        "/target": {"text": "[0,0,0,0]"},
        "/history": {"act": "import"},
        "/evaluations": {"candidate": "uniform"},
    }
    for path, form in sent.items():
        assert (await guarded.http.post(PLACE + path, data=form, headers=OWN)).status_code == 404
    assert await status(guarded) == "active"
    system = await guarded.http.get("/console/system")
    assert "doses" not in system.text
    assert "Settings" not in system.text  # nor keys: they are the operator's


async def is_in(api: Api, key: str) -> bool:
    return (await log_in(api, key)).status_code == 303


async def test_scopes_hold_as_in_the_api(guarded: Api, url: str):
    weak = await make_key(url, TenantScope("acme"), frozenset({Scope.REWARD}))
    await eventually(lambda: is_in(guarded, weak))
    page = await guarded.http.get(PLACE)
    assert page.status_code == 200
    assert "Train now" not in page.text
    assert "New experiment" not in (await guarded.http.get("/console")).text
    for path, missing in (
        (f"{PLACE}/log", "admin"),
        (f"{PLACE}/target", "target"),
        (f"{PLACE}/history", "admin"),
        (f"{PLACE}/evaluations", "admin"),
        ("/console/create", "admin"),
        ("/console/create/tables", "admin"),
        ("/console/importing?name=doses", "admin"),
    ):
        answer = await guarded.http.get(path)
        assert (answer.status_code, f"<code>{missing}</code>" in answer.text) == (403, True)
    act = await guarded.http.post(f"{PLACE}/act", data=PAUSE, headers=OWN)
    assert (act.status_code, await status(guarded)) == (403, "active")


async def test_a_revoked_key_ends_its_sessions(guarded: Api, key: str):
    await log_in(guarded, key)
    assert (await guarded.http.get("/console")).status_code == 200
    await Keys(guarded.services.database).revoke(key.split("_")[1], "test")

    async def is_out() -> bool:
        return (await guarded.http.get("/console")).status_code == 303

    await eventually(is_out)


async def test_the_operator_sees_settings_and_keys_without_secrets(url: str):
    key = await make_key(url, TenantScope(), ALL)
    settings: dict[str, Any] = {"auth": "required", "console_signing_key": "canary" * 8}
    async with running_api(url, **settings) as api:
        await log_in(api, key)
        page = await api.http.get("/console/system")
    assert key.split("_")[1] in page.text
    assert "DABAND_CONSOLE_SIGNING_KEY" in page.text
    assert "canary" not in page.text
    assert key.split("_")[2] not in page.text


async def test_a_service_without_keys_opens_at_once(url: str):
    async with running_api(url) as api:
        assert (await api.http.get("/console")).status_code == 200
        for path in ("/", "/console/login"):
            assert (await api.http.get(path)).headers["location"] == "/console"
        page = await api.http.get("/console")
        assert "Log out" not in page.text
        index = await api.http.get("/", headers={"Accept": "application/json"})
        for path in set(index.json().values()) - {"daband"}:
            assert (await api.http.get(path)).status_code == 200, path
