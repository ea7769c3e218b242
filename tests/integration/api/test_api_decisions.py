"""One decision derived again over HTTP: byte for byte, or with the reason why not."""

from typing import Any

import pytest

from tests.support.api import CONTEXT, DOSES, OTHER_CONTEXT, Api
from tests.support.evaluations import played


async def again(api: Api, decision_id: str, name: str = "doses") -> dict[str, Any]:
    answer = await api.http.get(f"/experiments/{name}/decisions/{decision_id}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_decision_of_each_kind_is_derived_again(api: Api):
    sides = {"source": {"context": CONTEXT}, "target": {"context": OTHER_CONTEXT}}
    own = {"source": {"contexts": {"mid": CONTEXT, "high": OTHER_CONTEXT}}}
    for name, body in (
        ("doses", sides),
        ("doses", {**sides, "eligible_arms": ["high", "low"]}),
        ("offers", own),
    ):
        answer = (await api.http.post("/select", json={"experiment": name, **body})).json()
        for domain in body.keys() & {"source", "target"}:
            found = await again(api, answer[domain]["decision_id"], name)
            assert found["logged"] == found["derived"] == answer[domain]
            assert (found["is_equal"], found["largest_difference"]) == (True, 0.0)
            assert (found["problem"], found["reward"], found["domain"]) == (None, None, domain)


async def test_the_reward_and_the_place_in_the_log_are_beside_it(api: Api):
    decision_id = await api.decide()
    await api.reward(decision_id, 0.25)
    found = await again(api, decision_id)
    assert (found["offset"], found["reward"]["offset"], found["reward"]["reward"]) == (1, 2, 0.25)
    head = await api.last_offset()
    await again(api, decision_id)
    assert await api.last_offset() == head  # nothing is logged


async def test_a_decision_whose_snapshot_is_gone_says_so(api: Api):
    services = api.services
    await played(services.experiments, services.event_log, "lab", 1)
    (first, *_) = (await api.http.get("/experiments/lab/log")).json()["entries"]
    found = await again(api, first["decision_id"], "lab")
    assert (found["derived"], found["is_equal"]) == (None, None)
    assert "version 1 was pruned" in found["problem"]
    assert found["logged"]["arm"] == first["arm"]


async def test_an_imported_decision_cannot_be_derived(api: Api):
    rows = "a,b,c,d,arm,reward\n1,2,3,4,mid,0.5\n"
    sent = await api.http.post(
        "/experiments/doses/history",
        content=rows,
        params={"arm": "arm", "reward": "reward"},
        headers={"Content-Type": "text/csv"},
    )
    assert sent.status_code == 201, sent.text
    (entry,) = (await api.http.get("/experiments/doses/log")).json()["entries"]
    found = await again(api, entry["decision_id"])
    assert (found["derived"], found["logged"]["probabilities"]) == (None, {})
    assert "imported" in found["problem"]


@pytest.mark.parametrize("name", ["doses", "other"])
async def test_an_unknown_decision_is_not_found(api: Api, name: str):
    await api.http.post("/experiments", json={**DOSES, "name": "other"})
    decision_id = await api.decide() if name == "other" else "none"
    answer = await api.http.get(f"/experiments/{name}/decisions/{decision_id}")
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/unknown-decision")
