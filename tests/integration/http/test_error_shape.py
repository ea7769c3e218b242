"""Every error of every route has one shape, and quotes nothing of the request."""

import re
from typing import Any

import httpx
import pytest

from service.app import create_app
from service.errors import problem_types
from service.http.dialects import dialect_of
from service.records import Experiment
from service.settings import Settings
from tests.support.api import Api

CANARY = "canary-7331"


def routes() -> list[tuple[str, str]]:
    """All but those of protocols with a shape of their own: tests/integration/protocols."""
    paths = create_app(Settings()).openapi()["paths"]
    return [
        (method.upper(), path)
        for path, methods in paths.items()
        for method in methods
        if dialect_of(path) is None
    ]


def filled(path: str) -> str:
    known = {
        "name": "doses",
        "version": "1",
        "episode": "1",
        "slug": "overloaded",
        "evaluation_id": "none",
        "decision_id": "none",
    }
    return re.sub(r"{(\w+)}", lambda match: known[match[1]], path)


WITH_BODY = ("POST", "PATCH")


def assert_is_problem(answer: httpx.Response, *statuses: int) -> dict[str, Any]:
    body: dict[str, Any] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.status_code in statuses, answer.text
    assert {"type", "title", "status", "detail", "instance", "request_id"} <= set(body)
    assert body["status"] == answer.status_code
    assert body["request_id"] == answer.headers["x-request-id"]
    assert body["type"] == "about:blank" or body["type"][10:] in problem_types()
    assert CANARY not in answer.text
    return body


@pytest.mark.parametrize(("method", "path"), routes())
async def test_a_wrong_method_is_refused(api: Api, method: str, path: str):
    answer = await api.http.request("PUT", filled(path))
    assert assert_is_problem(answer, 405)["type"] == "about:blank"
    assert answer.headers["allow"]


@pytest.mark.parametrize(("method", "path"), [each for each in routes() if each[0] in WITH_BODY])
@pytest.mark.parametrize(
    ("content", "media", "status"),
    [
        (f'{{"requestId": "{CANARY}"}}', "application/json", 422),
        (f'["{CANARY}"]', "application/json", 422),
        (f'{{"{CANARY}', "application/json", 422),
        (f'{{"experiment": "{CANARY}", "reward": NaN}}', "application/json", 422),
        (CANARY, "application/msgpack", 422),
        (CANARY, "text/plain", 415),
        (CANARY, f"application/{CANARY}", 415),
        ("x" * 70_000, "application/json", 413),
    ],
)
async def test_a_bad_body_is_refused(
    api: Api, method: str, path: str, content: str, media: str, status: int
):
    headers = {"Content-Type": media}
    if path == "/target/contexts":
        status = 415  # it reads neither JSON nor msgpack
    if path.endswith(("/history", "/evaluations/file")):
        status = 422  # their query has to name columns or candidates
    answer = await api.http.request(method, filled(path), content=content, headers=headers)
    body = assert_is_problem(answer, status)
    if status == 422:
        assert body["errors"][0]["pointer"].startswith("#")


@pytest.mark.parametrize("encoding", ["gzip", "deflate, br", CANARY])
async def test_a_compressed_body_is_refused(api: Api, encoding: str):
    headers = {"Content-Encoding": encoding, "Content-Type": "application/json"}
    answer = await api.http.post("/select", content=b"\x1f\x8b", headers=headers)
    assert_is_problem(answer, 415)


async def test_unknown_things_are_not_found(api: Api):
    for path in (
        f"/{CANARY}",
        f"/experiments/{CANARY}",
        f"/experiments/{CANARY}/state",
        f"/experiments/{CANARY}/snapshots",
        f"/experiments/{CANARY}/snapshots/1/policy",
        f"/experiments/{CANARY}/{CANARY}",
        "/experiments/doses/snapshots/1/policy",
        f"/problems/{CANARY}",
    ):
        assert_is_problem(await api.http.get(path), 404)
    select = {"experiment": CANARY, "source": {"context": [1]}}
    assert_is_problem(await api.http.post("/select", json=select), 404)
    reward = {"decision_id": CANARY, "reward": 1}
    assert_is_problem(await api.http.post("/reward", json=reward), 404)


async def test_bad_parameters_are_refused(api: Api):
    for path in (
        f"/experiments/doses/snapshots?limit={CANARY}",
        f"/experiments/doses/snapshots/{CANARY}/policy",
    ):
        body = assert_is_problem(await api.http.get(path), 422)
        assert body["errors"][0]["pointer"] in ("#/limit", "#/version")
    answer = await api.http.post(f"/select?domain={CANARY}", json={})
    assert_is_problem(answer, 422)


class Broken:
    """Stands where experiments are kept and fails at everything."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(CANARY)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/experiments"), ("GET", "/experiments/doses/state")]
)
async def test_a_crash_is_answered_with_only_the_request_id(
    api: Api, method: str, path: str, caplog: pytest.LogCaptureFixture
):
    object.__setattr__(api.services, "experiments", Broken())
    answer = await api.http.request(method, path, headers={"X-Request-ID": "mine-1"})
    body = assert_is_problem(answer, 500)
    assert (body["type"], body["request_id"]) == ("/problems/internal-error", "mine-1")
    assert [getattr(record, "action", None) for record in caplog.records] == ["request_failed"]


async def test_a_crash_on_the_fast_path_has_the_same_shape(api: Api):
    async def crash(name: str) -> Experiment:
        raise RuntimeError(CANARY)

    api.services.policies.current = crash  # type: ignore[method-assign,assignment]
    select = {"experiment": "doses", "source": {"context": [1]}}
    assert_is_problem(await api.http.post("/select", json=select), 500)
