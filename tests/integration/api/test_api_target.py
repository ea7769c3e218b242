"""The target policy alone over HTTP, on SQLite and on Postgres."""

import io
import json
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from service.records import EventKind
from tests.support.api import CONTEXT, OTHER_CONTEXT, Api

ROWS = np.random.default_rng(3).standard_normal((7, 4)).astype(np.float32)


async def ask(api: Api, **fields: Any) -> httpx.Response:
    return await api.http.post("/target/select", json={"experiment": "doses", **fields})


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


# Of the same length, and numpy takes True for 1.
SHAPED_BY_TRUE = npy(ROWS[:1]).replace(b"(1, 4), }   ", b"(True, 4), }")
UNBALANCED = npy(ROWS[:1]).replace(b"(1, 4), }", b"(1, 4), (")


@pytest.mark.parametrize("content", [SHAPED_BY_TRUE, UNBALANCED, npy(ROWS[:1])[:20]])
async def test_a_malformed_npy_file_is_refused(api: Api, content: bytes):
    headers = {"Content-Type": "application/x-npy"}
    for path in ("/target/select", "/select"):
        url = f"{path}?experiment=doses"
        answer = await api.http.post(url, content=content, headers=headers)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#")


async def test_one_context_is_decided_and_nothing_is_written(api: Api):
    answer = await ask(api, context=CONTEXT)
    body = answer.json()
    assert answer.status_code == 200, answer.text
    (decision,) = body["decisions"]
    assert set(decision) == {
        "arm",
        "probabilities",
        "mean",
        "bonus",
        "transfer_confidence",
        "abstained",
    }
    assert decision["arm"] in ("low", "mid", "high")
    assert sum(decision["probabilities"].values()) == pytest.approx(1.0)
    assert (body["policy_version"], body["stored"], decision["abstained"]) == (0, None, False)
    assert await api.last_offset() == 0


async def test_equal_contexts_get_equal_decisions(api: Api):
    first, second = [await ask(api, contexts=[CONTEXT, OTHER_CONTEXT] * 5) for _ in range(2)]
    decisions = first.json()["decisions"]
    assert first.json() == second.json()
    assert decisions[0] == decisions[2] == decisions[8]


async def test_all_bodies_say_the_same(api: Api):
    expected = (await ask(api, contexts=ROWS.tolist())).json()
    packed = {"experiment": "doses", "contexts": ROWS.tobytes()}
    for content, media, query in (
        (msgspec.msgpack.encode(packed), "application/msgpack", {}),
        (ROWS.tobytes(), "application/octet-stream", {"experiment": "doses"}),
        (npy(ROWS), "application/x-npy", {"experiment": "doses"}),
        (npy(ROWS.astype(np.float64)), "application/x-npy", {"experiment": "doses"}),
        (npy(np.asfortranarray(ROWS)), "application/x-npy", {"experiment": "doses"}),
    ):
        answer = await api.http.post(
            "/target/select", content=content, headers={"Content-Type": media}, params=query
        )
        assert answer.json() == expected


@pytest.mark.parametrize(
    "fields", [{}, {"confidence_floor": 0.5}, {"eligible_arms": ["high", "low"]}]
)
async def test_a_table_says_what_the_json_says(api: Api, fields: dict[str, Any]):
    body = {"experiment": "doses", "contexts": ROWS.tolist(), **fields}
    payload = (await api.http.post("/target/select", json=body)).json()
    answer = await api.http.post(
        "/target/select", json=body, headers={"Accept": "application/x-npy"}
    )
    assert answer.headers["content-type"] == "application/x-npy"
    assert answer.headers["x-policy-version"] == str(payload["policy_version"])
    table = np.load(io.BytesIO(answer.content), allow_pickle=False)
    arms = ("low", "mid", "high")
    for row, decision in zip(table, payload["decisions"], strict=True):
        assert (arms[row["arm"]] if row["arm"] >= 0 else None) == decision["arm"]
        assert row["abstained"] == decision["abstained"]
        for name in ("mean", "bonus", "transfer_confidence"):
            assert row[name] == pytest.approx(decision[name])
        chances = dict(zip(arms, row["probabilities"].tolist(), strict=True))
        assert {arm: chances[arm] for arm in decision["probabilities"]} == decision["probabilities"]


async def test_eligible_arms_narrow_the_choice(api: Api):
    body = (await ask(api, contexts=ROWS.tolist(), eligible_arms=["high"])).json()
    assert [each["arm"] for each in body["decisions"]] == ["high"] * 7
    assert body["decisions"][0]["probabilities"] == {"high": 1.0}


async def test_contexts_by_arm_may_differ_in_their_arms(api: Api):
    contexts = [{"low": CONTEXT, "mid": OTHER_CONTEXT}, {"high": CONTEXT}, {"low": CONTEXT}]
    answer = await ask(api, experiment="offers", contexts=contexts)
    decisions = answer.json()["decisions"]
    assert [set(each["probabilities"]) for each in decisions] == [{"low", "mid"}, {"high"}, {"low"}]
    assert [each["arm"] for each in decisions[1:]] == ["high", "low"]
    rows = np.array([[CONTEXT, OTHER_CONTEXT]], dtype=np.float32)
    binary = await api.http.post(
        "/target/select",
        content=rows.tobytes(),
        headers={"Content-Type": "application/octet-stream"},
        params={"experiment": "offers", "eligible_arms": ["low", "mid"]},
    )
    assert binary.json()["decisions"][0] == decisions[0]


async def test_a_floor_makes_it_abstain_and_fall_back(api: Api):
    declared = {
        "name": "careful",
        "arms": ["a", "b"],
        "context": {"kind": "shared", "shape": [4]},
        "fallback_arm": "b",
    }
    assert (await api.http.post("/experiments", json=declared)).status_code == 201
    body = {"experiment": "careful", "contexts": [CONTEXT] * 2, "confidence_floor": 0.5}
    decisions = (await api.http.post("/target/select", json=body)).json()["decisions"]
    assert [(each["arm"], each["abstained"]) for each in decisions] == [("b", True)] * 2
    assert decisions[0]["transfer_confidence"] == 0.0  # there is nothing to judge by yet
    metrics = (await api.http.get("/metrics")).text
    assert 'daband_target_selections_total{experiment="careful",outcome="abstained"} 2.0' in metrics
    (none,) = (await ask(api, context=CONTEXT, confidence_floor=0.5)).json()["decisions"]
    assert (none["arm"], none["abstained"]) == (None, True)  # no arm was declared to fall back to


async def test_a_fallback_arm_is_one_of_the_arms(api: Api):
    declared = {
        "name": "wrong",
        "arms": ["a", "b"],
        "context": {"kind": "shared", "shape": [4]},
        "fallback_arm": "c",
    }
    answer = await api.http.post("/experiments", json=declared)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/fallback_arm")


async def test_stored_contexts_are_in_the_log_once(api: Api):
    asked = {"contexts": ROWS.tolist(), "store": True, "request_id": "s-1"}
    first, again = await ask(api, **asked), await ask(api, **asked)
    stored = first.json()["stored"]
    assert (stored["status"], stored["contexts"], stored["request_id"]) == ("created", 7, "s-1")
    assert again.json()["stored"] == {**stored, "status": "already_recorded"}
    assert again.headers["idempotent-replayed"] == "true"
    other = await ask(api, **{**asked, "contexts": [CONTEXT]})
    assert (other.status_code, other.json()["type"]) == (409, "/problems/request-conflict")
    experiment = await api.services.experiments.get("doses")
    events = await api.services.event_log.read(experiment.experiment_id, 0, 99)
    assert {event.kind for event in events} == {EventKind.CONTEXTS}
    assert await api.last_offset() == stored["offset"]
    part = await api.services.event_log.contexts_part(experiment.experiment_id, "s-1", 0)
    assert part.context == ROWS.tobytes()


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({}, "#"),
        ({"context": CONTEXT, "contexts": [CONTEXT]}, "#"),
        ({"contexts": []}, "#/contexts"),
        ({"contexts": [CONTEXT] * 1001}, "#/contexts"),
        ({"contexts": [CONTEXT, [1.0]]}, "#/contexts"),
        ({"contexts": [[1e39, 0, 0, 0]]}, "#/contexts"),
        ({"contexts": [[True, 0, 0, 0]]}, "#/contexts/0/0"),
        ({"context": {"low": CONTEXT}}, "#/context"),
        ({"context": CONTEXT, "confidence_floor": 2}, "#/confidence_floor"),
        ({"context": CONTEXT, "eligible_arms": ["none"]}, "#/eligible_arms"),
        ({"context": CONTEXT, "store": 1}, "#/store"),
    ],
)
async def test_what_is_no_request_is_refused(api: Api, fields: dict[str, Any], pointer: str):
    answer = await ask(api, **fields)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert await api.last_offset() == 0


async def upload(
    api: Api, content: Any, media: str = "application/x-ndjson", **query: str
) -> httpx.Response:
    return await api.http.post(
        "/target/contexts",
        content=content,
        headers={"Content-Type": media},
        params={"experiment": "doses", **query},
    )


def lines(rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


async def test_uploads_of_all_kinds_are_the_same_set(api: Api):
    first = await upload(api, lines(ROWS.tolist()), request_id="u-1")
    expected = {"experiment": "doses", "request_id": "u-1", "contexts": 7, "offset": 2}
    assert (first.status_code, first.json()) == (201, {**expected, "status": "created"})
    for content, media in (
        (npy(ROWS), "application/x-npy"),
        (ROWS.tobytes(), "application/octet-stream"),
        (b"\n" + lines(ROWS.tolist())[:-1], "application/x-ndjson"),
    ):
        again = await upload(api, content, media, request_id="u-1")
        assert (again.status_code, again.json()["status"]) == (200, "already_recorded")
    other = await upload(api, lines(ROWS[:3].tolist()), request_id="u-1")
    assert other.status_code == 409
    assert await api.last_offset() == 2


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_an_upload_may_arrive_in_any_pieces(api: Api, size: int):
    for number, (content, media) in enumerate(
        ((lines(ROWS.tolist()), "application/x-ndjson"), (npy(ROWS), "application/x-npy"))
    ):

        async def pieces(content: bytes = content) -> Any:
            for start in range(0, len(content), size):
                yield content[start : start + size]

        answer = await upload(api, pieces(), media, request_id=f"u-{number}")
        assert (answer.status_code, answer.json()["contexts"]) == (201, 7)


@pytest.mark.parametrize(
    ("content", "media", "pointer"),
    [
        (b"", "application/x-ndjson", "#"),
        (lines([CONTEXT, CONTEXT[:3]]), "application/x-ndjson", "#/1"),
        (lines([CONTEXT]) + b"[1, 2, 3, NaN]\n", "application/x-ndjson", "#/1"),
        (lines([CONTEXT]) + b"[1, 2, 3, 1e39]", "application/x-ndjson", "#/1"),
        (b"[1, 2\n3, 4]\n", "application/x-ndjson", "#/0"),
        (b"[1,2,3,4],[1,2,3,4]\n", "application/x-ndjson", "#/0"),
        (b'{"context": [1]}', "application/x-ndjson", "#/0"),
        (ROWS.tobytes()[:-1], "application/octet-stream", "#/6"),
        (npy(ROWS)[:-4], "application/x-npy", "#/6"),
        (npy(ROWS)[:-16], "application/x-npy", "#"),
        (npy(ROWS) + ROWS.tobytes(), "application/x-npy", "#"),
        (npy(ROWS[:, :3]), "application/x-npy", "#"),
        (npy(np.asfortranarray(ROWS)), "application/x-npy", "#"),
        (npy(ROWS.astype(int)), "application/x-npy", "#"),
        (b"no npy at all", "application/x-npy", "#"),
        (SHAPED_BY_TRUE, "application/x-npy", "#"),
        (UNBALANCED, "application/x-npy", "#"),
        (np.full((2, 4), np.inf, dtype="<f4").tobytes(), "application/octet-stream", "#/0"),
    ],
)
async def test_a_bad_upload_changes_nothing(api: Api, content: bytes, media: str, pointer: str):
    answer = await upload(api, content, media)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
    assert await api.last_offset() == 0


async def test_an_upload_is_for_an_experiment_that_exists(api: Api):
    assert (await upload(api, b"[1]", experiment="none")).status_code == 404
    assert (await upload(api, b"[1]", experiment="")).status_code == 422
    assert (await upload(api, b"[1]", "application/json")).status_code == 415
