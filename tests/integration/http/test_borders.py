"""Security headers on every answer, and no access for other origins."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from service.routes import PAGE_POLICY
from service.settings import Settings
from tests.support.api import CONTEXT, DOSES, Api, running_api

LAB = "https://lab.example"
SELECT = {"experiment": "doses", "source": {"context": CONTEXT}}
ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def assert_is_guarded(answer: httpx.Response) -> None:
    assert {name: answer.headers.get(name) for name in ALWAYS} == ALWAYS
    assert answer.headers.get_list("content-security-policy")[1:] == []
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/healthz",
            "/metrics",
            "/experiments",
            "/experiments/doses",
            "/openapi.json",
            "/",
            "/docs",
        ),
        *("/nowhere", "/experiments/nobody/report", "/experiments/doses/transfer?format=csv"),
        *("/docs/assets/swagger-ui.css", "/experiments/doses/snapshots/x/policy"),
    ],
)
async def test_every_answer_has_the_headers(api: Api, path: str):
    assert_is_guarded(await api.http.get(path))


async def test_refusals_and_crashes_have_them_too(api: Api):
    assert_is_guarded(await api.http.post("/select", content=b"x" * 70_000))
    assert_is_guarded(await api.http.delete("/select"))

    async def crash(name: str) -> None:
        raise RuntimeError

    api.services.policies.current = crash  # type: ignore[method-assign,assignment]
    answer = await api.http.post("/select", json=SELECT)
    assert answer.status_code == 500
    assert_is_guarded(answer)


async def test_a_report_may_not_run_scripts(api: Api):
    report = await api.http.get("/experiments/doses/report")
    assert_is_guarded(report)
    assert report.headers["content-security-policy"] == PAGE_POLICY
    assert "script" not in PAGE_POLICY
    assert "<script" not in report.text


async def test_the_docs_page_runs_the_one_script_inside_it(api: Api):
    page = await api.http.get("/docs")
    policy = page.headers["content-security-policy"]
    assert page.text.count("<script>") == policy.count("'sha256-") == 1
    assert "script-src 'self' 'sha256-" in policy


@pytest.fixture
async def shared(url: str) -> AsyncIterator[Api]:
    """An app that lets the pages of one origin in."""
    async with running_api(url, cors_origins=f"{LAB}, https://other.example") as running:
        assert (await running.http.post("/experiments", json=DOSES)).status_code == 201
        yield running


def preflight(origin: str) -> dict[str, str]:
    return {"Origin": origin, "Access-Control-Request-Method": "POST"}


def shares(answer: httpx.Response) -> bool:
    return any(name.startswith("access-control-") for name in answer.headers)


async def test_no_origin_is_let_in_by_default(api: Api):
    asked = await api.http.options("/select", headers=preflight(LAB))
    assert asked.status_code == 405
    read = await api.http.get("/experiments", headers={"Origin": LAB})
    assert read.status_code == 200
    assert not shares(asked)
    assert not shares(read)


async def test_a_listed_origin_may_ask_and_read(shared: Api):
    asked = await shared.http.options("/select", headers=preflight(LAB))
    assert (asked.status_code, asked.content) == (204, b"")
    assert asked.headers["access-control-allow-origin"] == LAB
    assert "Authorization" in asked.headers["access-control-allow-headers"]
    read = await shared.http.post("/select", json=SELECT, headers={"Origin": LAB})
    assert read.status_code == 200
    assert read.headers["access-control-allow-origin"] == LAB
    assert read.headers["cross-origin-resource-policy"] == "cross-origin"
    assert "Origin" in read.headers["vary"]
    for answer in (asked, read):
        assert "access-control-allow-credentials" not in answer.headers


async def test_problems_can_be_read_as_well(shared: Api):
    answer = await shared.http.get("/experiments/nobody", headers={"Origin": LAB})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, LAB)


@pytest.mark.parametrize("origin", ["https://evil.example", f"{LAB}.evil.example", "null"])
async def test_any_other_origin_stays_out(shared: Api, origin: str):
    asked = await shared.http.options("/select", headers=preflight(origin))
    assert (asked.status_code, shares(asked)) == (405, False)
    head = await shared.last_offset()
    answer = await shared.http.post("/select", json=SELECT, headers={"Origin": origin})
    assert (answer.status_code, answer.json()["type"]) == (403, "/problems/origin-refused")
    assert not shares(answer)
    assert await shared.last_offset() == head


async def test_the_services_own_pages_may_ask(api: Api):
    for origin in ("http://test", "https://test"):
        answer = await api.http.post("/select", json=SELECT, headers={"Origin": origin})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("host", "auth", "needs_keys"),
    [
        ("127.0.0.1", "auto", False),
        ("127.8.9.1", "auto", False),
        ("::1", "auto", False),
        ("localhost", "auto", False),
        ("0.0.0.0", "auto", True),  # noqa: S104
        ("::", "auto", True),
        ("10.0.0.7", "auto", True),
        ("localhost.evil.example", "auto", True),
        ("", "auto", True),
        ("127.0.0.1", "required", True),
        ("127.0.0.1", "off", False),
        ("0.0.0.0", "dangerously-off", False),  # noqa: S104
    ],
)
def test_the_address_decides_whether_keys_are_needed(host: str, auth: Any, needs_keys: bool):
    assert Settings(host=host, auth=auth).needs_keys is needs_keys


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "daband.example"])  # noqa: S104
def test_no_keys_on_an_address_that_others_reach_must_be_said_loudly(host: str):
    with pytest.raises(ValidationError, match="dangerously-off"):
        Settings(host=host, auth="off")


@pytest.mark.parametrize("listed", ["*", "lab.example", "https://lab.example/", "ftp://x"])
def test_origins_are_written_as_browsers_write_them(listed: str):
    with pytest.raises(ValidationError, match="DABAND_CORS_ORIGINS"):
        Settings(cors_origins=listed)
