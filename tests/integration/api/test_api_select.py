"""Selecting over HTTP, on SQLite and on Postgres."""

import asyncio
import io
from typing import Any

import msgspec
import numpy as np
import pytest

from model.rounds import Domain
from service.codec.decisions import chosen_context, propensity
from service.experiment_spec import ExperimentSpec
from service.records import EventKind, Status, StoredEvent
from tests.support.api import CONTEXT, OTHER_CONTEXT, Api

BOTH = {"source": {"context": CONTEXT}, "target": {"context": OTHER_CONTEXT}}


async def stored(api: Api, experiment: str = "doses") -> list[StoredEvent]:
    found = await api.services.experiments.get(experiment)
    return await api.services.event_log.read(found.experiment_id, after=0, limit=1000)


async def test_a_round_is_answered_for_both_domains_under_one_policy(api: Api):
    body = (await api.select("r-1", **BOTH)).json()
    assert set(body) == {"experiment", "request_id", "policy_version", "source", "target"}
    assert (body["experiment"], body["request_id"], body["policy_version"]) == ("doses", "r-1", 0)
    for side in (body["source"], body["target"]):
        assert set(side) == {"decision_id", "arm", "probabilities", "scores"}
        assert list(side["probabilities"]) == list(side["scores"]) == ["low", "mid", "high"]
        assert sum(side["probabilities"].values()) == pytest.approx(1)
        score = side["scores"][side["arm"]]
        assert score["ucb"] == score["mean"] + score["bonus"]


async def test_what_was_answered_is_in_the_log(api: Api):
    body = (await api.select("r-1", **BOTH)).json()
    source, target = await stored(api)
    assert (source.event_key, target.event_key) == (
        body["source"]["decision_id"],
        body["target"]["decision_id"],
    )
    assert (source.kind, source.domain, target.domain) == (
        EventKind.DECISION,
        Domain.SOURCE,
        Domain.TARGET,
    )
    assert source.arm == body["source"]["arm"]
    assert propensity(source) == body["source"]["probabilities"][source.arm]
    spec = ExperimentSpec.of(await api.services.experiments.get("doses"))
    np.testing.assert_array_equal(
        chosen_context(target, spec), np.array(OTHER_CONTEXT, dtype=np.float32)
    )


async def test_either_side_may_be_absent_but_not_both(api: Api):
    assert "target" not in (await api.select()).json()
    alone = await api.http.post(
        "/select", json={"experiment": "doses", "target": {"context": CONTEXT}}
    )
    assert "source" not in alone.json()
    assert (await api.http.post("/select", json={"experiment": "doses"})).status_code == 422


async def test_the_same_request_gets_the_same_answer(api: Api):
    first = await api.select("r-1", **BOTH)
    second = await api.select("r-1", **BOTH)
    assert second.content == first.content
    assert "idempotent-replayed" not in first.headers
    assert second.headers["idempotent-replayed"] == "true"
    assert await api.last_offset() == 2


@pytest.mark.parametrize(
    "other",
    [
        {"source": {"context": OTHER_CONTEXT}, "target": {"context": OTHER_CONTEXT}},
        {"source": {"context": CONTEXT}},
        {**BOTH, "eligible_arms": ["low", "mid"]},
    ],
)
async def test_the_same_id_with_another_body_is_refused(api: Api, other: dict[str, Any]):
    await api.select("r-1", **BOTH)
    body = {"experiment": "doses", "request_id": "r-1", **other}
    answer = await api.http.post("/select", json=body)
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/request-conflict")
    assert await api.last_offset() == 2


async def test_twenty_equal_requests_at_once_make_one_decision(api: Api):
    answers = await asyncio.gather(*(api.select("r-1", **BOTH) for _ in range(20)))
    assert len({answer.content for answer in answers}) == 1
    assert await api.last_offset() == 2


async def test_requests_of_one_tick_have_answers_of_their_own(api: Api):
    """They are one batch, and what one of them is refused for is not the others' matter."""
    first = (await api.select("r-1", **BOTH)).json()
    await api.select("r-0", **BOTH)
    again, other, *new = await asyncio.gather(
        api.select("r-1", **BOTH),
        api.select("r-0"),
        api.select("r-2", **BOTH),
        api.select("r-3"),
        api.select("r-4", eligible_arms=["low"]),
        api.select(),
    )
    assert (again.status_code, other.status_code) == (200, 409)
    assert again.json() == first
    assert [each.status_code for each in new] == [200] * 4
    bodies = [each.json() for each in new]
    assert [body["request_id"] for body in bodies[:3]] == ["r-2", "r-3", "r-4"]
    assert bodies[2]["source"]["arm"] == "low"
    written = {event.event_key: event.request_id for event in await stored(api)}
    for body in (first, *bodies):
        for side in {"source", "target"} & set(body):
            assert written.pop(body[side]["decision_id"]) == body["request_id"]
    assert list(written.values()) == ["r-0"] * 2


async def test_a_request_without_an_id_gets_one(api: Api):
    first, second = (await api.select()).json(), (await api.select()).json()
    assert first["request_id"] != second["request_id"]


async def test_only_eligible_arms_are_offered_whatever_their_order(api: Api):
    body = (await api.select("r-1", eligible_arms=["high", "low"])).json()
    assert list(body["source"]["probabilities"]) == ["low", "high"]
    assert sum(body["source"]["probabilities"].values()) == pytest.approx(1)
    again = await api.select("r-1", eligible_arms=["low", "high"])
    assert again.json() == body


async def test_one_eligible_arm_is_chosen_for_certain(api: Api):
    body = (await api.select(eligible_arms=["mid"])).json()
    assert (body["source"]["arm"], body["source"]["probabilities"]) == ("mid", {"mid": 1.0})


async def test_arms_with_contexts_of_their_own(api: Api):
    contexts = {"mid": CONTEXT, "low": OTHER_CONTEXT}
    body = {"experiment": "offers", "source": {"contexts": contexts}}
    answer = (await api.http.post("/select", json=body)).json()["source"]
    assert list(answer["probabilities"]) == ["low", "mid"]
    (event,) = await stored(api, "offers")
    spec = ExperimentSpec.of(await api.services.experiments.get("offers"))
    np.testing.assert_array_equal(
        chosen_context(event, spec), np.array(contexts[answer["arm"]], dtype=np.float32)
    )


async def test_open_arms_may_differ_from_call_to_call(api: Api):
    declared = {"name": "open", "context": {"kind": "per_arm", "shape": [2]}, "method": "linucb"}
    assert (await api.http.post("/experiments", json=declared)).status_code == 201
    for arms in (["x"], ["y", "z"]):
        contexts = {arm: [0.5, 0.5] for arm in arms}
        body = {"experiment": "open", "source": {"contexts": contexts}}
        answer = await api.http.post("/select", json=body)
        assert list(answer.json()["source"]["probabilities"]) == arms


async def test_many_rounds_are_decided_at_once(api: Api):
    rounds: list[dict[str, Any]] = [
        {"request_id": "a", **BOTH},
        {"request_id": "b", "source": {"context": CONTEXT}, "eligible_arms": ["low"]},
        {"request_id": "c", "target": {"context": CONTEXT}},
    ]
    body = {"experiment": "doses", "rounds": rounds}
    answer = await api.http.post("/select/batch", json=body)
    answered = answer.json()["rounds"]
    assert [each["request_id"] for each in answered] == ["a", "b", "c"]
    assert list(answered[1]["source"]["probabilities"]) == ["low"]
    assert "source" not in answered[2]
    assert await api.last_offset() == 4
    assert (await api.http.post("/select/batch", json=body)).content == answer.content
    single = await api.http.post("/select", json={"experiment": "doses", **rounds[0]})
    assert single.json() == answered[0]


async def test_rounds_with_different_numbers_of_arms_are_decided_at_once(api: Api):
    rounds = [
        {"source": {"contexts": dict.fromkeys(arms, CONTEXT)}}
        for arms in (["low"], ["low", "mid", "high"], ["high"])
    ]
    body = {"experiment": "offers", "rounds": rounds}
    answered = (await api.http.post("/select/batch", json=body)).json()["rounds"]
    assert [len(each["source"]["scores"]) for each in answered] == [1, 3, 1]


async def test_a_batch_is_written_whole_or_not_at_all(api: Api):
    await api.select("r-1")
    rounds = [{"request_id": "new", **BOTH}, {"request_id": "r-1", **BOTH}]
    body = {"experiment": "doses", "rounds": rounds}
    assert (await api.http.post("/select/batch", json=body)).status_code == 409
    assert await api.last_offset() == 1


async def test_every_format_means_the_same(api: Api):
    as_json = (await api.select("r-1")).json()
    packed: dict[str, Any] = {"experiment": "doses", "request_id": "r-1"}
    numbers = np.array(CONTEXT, dtype="<f4")
    file = io.BytesIO()
    np.save(file, numbers)
    query = "/select?experiment=doses&request_id=r-1&domain=source"
    for path, media, content in (
        ("/select", "msgpack", msgspec.msgpack.encode({**packed, "source": {"context": CONTEXT}})),
        (
            "/select",
            "msgpack",
            msgspec.msgpack.encode({**packed, "source": {"context": numbers.tobytes()}}),
        ),
        (query, "octet-stream", numbers.tobytes()),
        (query, "x-npy", file.getvalue()),
    ):
        headers = {"Content-Type": f"application/{media}"}
        answer = await api.http.post(path, content=content, headers=headers)
        assert answer.json() == as_json, media


async def test_binary_rows_are_named_by_the_query(api: Api):
    rows = np.array([CONTEXT, OTHER_CONTEXT], dtype="<f4")
    query = {"experiment": "offers", "domain": "target", "eligible_arms": ["mid", "low"]}
    headers = {"Content-Type": "application/octet-stream"}
    answer = await api.http.post("/select", params=query, content=rows.tobytes(), headers=headers)
    assert list(answer.json()["target"]["probabilities"]) == ["low", "mid"]
    (event,) = await stored(api, "offers")
    assert event.context == rows[::-1].tobytes()


async def test_decisions_are_counted(api: Api):
    await api.select("r-1", **BOTH)
    await api.select("r-1", **BOTH)
    text = (await api.http.get("/metrics")).text
    assert 'daband_decisions_total{domain="target",experiment="doses"} 1.0' in text


MANY_ROUNDS = [
    {"source": {"context": CONTEXT}}
    if number % 3
    else {"source": {"context": CONTEXT}, "target": {"context": [number, 0, 0, 0]}}
    for number in range(133)
]


async def test_many_rounds_are_answered_as_they_are_written(api: Api):
    body = {"experiment": "doses", "rounds": MANY_ROUNDS}
    answer = (await api.http.post("/select/batch", json=body)).json()
    events = await stored(api)
    received = [
        (side, round_["request_id"], round_[side]["decision_id"], round_[side]["arm"])
        for round_ in answer["rounds"]
        for side in ("source", "target")
        if side in round_
    ]
    written = [(each.domain, each.request_id, each.event_key, each.arm) for each in events]
    assert received == written
    assert len(answer["rounds"]) == len(MANY_ROUNDS)
    last = api.services.selecting._recent.owner(received[-1][2])  # earlier ones may be forgotten
    assert last is not None
    assert last.experiment == "doses"
    lines = api.services.metrics.exposition().decode().splitlines()
    for domain, count in (
        ("source", len(MANY_ROUNDS)),
        ("target", len(received) - len(MANY_ROUNDS)),
    ):
        name = f'daband_decisions_total{{domain="{domain}",experiment="doses"}}'
        assert f"{name} {count:.1f}" in lines
    named = [
        {**asked, "request_id": round_["request_id"]}
        for round_, asked in zip(answer["rounds"], MANY_ROUNDS, strict=True)
    ]
    replayed = await api.http.post("/select/batch", json={"experiment": "doses", "rounds": named})
    assert replayed.headers["idempotent-replayed"] == "true"
    assert replayed.json() == answer


async def test_many_rounds_of_a_paused_experiment_are_refused_and_not_counted(api: Api):
    await api.select()
    await api.services.experiments.set_status("doses", Status.PAUSED)
    body = {"experiment": "doses", "rounds": MANY_ROUNDS}
    assert (await api.http.post("/select/batch", json=body)).status_code == 409
    assert await api.last_offset() == 1
    lines = api.services.metrics.exposition().decode()
    assert 'daband_decisions_total{domain="source",experiment="doses"} 1.0' in lines
