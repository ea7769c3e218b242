"""The nearest source examples beside a decision of the playground."""

import json
import re
from typing import Any

from service.auth.keys import Scope
from service.auth.tenants import TenantScope
from service.console import near_rows
from tests.integration.console.test_login import is_in
from tests.integration.console.test_pages import ODD, OWN, Checked, decided, shown
from tests.support.api import DOSES, TAUGHT, Api, running_api
from tests.support.images import colours, png
from tests.support.keys import bearer, make_key
from tests.support.learning import TRAINING
from tests.support.waiting import eventually

PLACE = "/console/experiments/doses"
QUIET = {**TAUGHT["config"], "episode_length": 10_000}
COLUMNS: list[dict[str, Any]] = [
    {"name": "<script>alert(1)</script>", "type": "numeric", "missing": True},
    {"name": "{{ 7 * 7 }}", "type": "categorical", "values": ODD},
    {"name": "treated", "type": "boolean"},
]
NAMES = [each["name"] for each in COLUMNS]
ROWS = [
    dict(zip(NAMES, values, strict=True)) for values in ((1.5, ODD[0], True), (None, ODD[3], False))
]


async def create(api: Api, **changes: Any) -> None:
    made = await api.http.post("/experiments", json={**DOSES, "config": QUIET, **changes})
    assert made.status_code == 201, made.text


async def learned(api: Api, rewards: int) -> None:
    async def is_learned() -> bool:
        state = (await api.http.get("/experiments/doses/state")).json()
        return bool(state["counts"]["folded_rewards"] == rewards and state["policy_version"])

    await eventually(is_learned)
    await eventually(lambda: is_sampled(api, rewards))


async def is_sampled(api: Api, rewards: int) -> bool:
    """Whether the policy that serves has learned from all rounds."""
    served = await api.services.policies.current("doses")
    return served.version > 0 and served.policy.version.offset >= 2 * rewards


async def test_a_decision_stands_beside_similar_rounds_with_their_columns(url: str):
    async with running_api(url, **TRAINING) as api:
        await create(api, arms=ODD, context={"kind": "table", "columns": COLUMNS})
        for number, row in enumerate(ROWS):
            body = {"experiment": "doses", "request_id": ODD[number], "source": {"context": row}}
            answer = (await api.http.post("/select", json=body)).json()["source"]
            await api.reward(answer["decision_id"], 0.75)
        await learned(api, len(ROWS))
        page = await decided(api, PLACE, data={"text": json.dumps(ROWS[:1])})
        Checked(page)
        (link, *others) = re.findall(rf'href="({PLACE}/log/[^"]*)"', page)
        assert len(others) == 1
        replayed = await shown(api, link)
    assert "among the newest 2 rewarded rounds" in page
    assert 'class="number">0.75</td><td class="number">0.00</td>' in page  # the copy of itself
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</bdi></th>" in page
    assert "<script>alert" not in page + replayed.text
    assert "<bdi>{{ 7 * 7 }}</bdi></th>" in page


async def test_vectors_are_cut_and_only_the_first_contexts_have_examples(
    url: str, monkeypatch: Any
):
    monkeypatch.setattr(near_rows, "MOST_CONTEXTS", 2)
    async with running_api(url, **TRAINING) as api:
        await create(api, context={"kind": "shared", "shape": [10]})
        empty = await decided(api, PLACE, data={"text": str([0.5] * 10)})
        body = {"experiment": "doses", "source": {"context": [0.5] * 10}}
        answer = (await api.http.post("/select", json=body)).json()["source"]
        await api.reward(answer["decision_id"])
        await learned(api, 1)
        page = await decided(api, PLACE, data={"text": str([[0.5] * 10] * 3)})
    assert "learned from no rewarded source round" in empty
    assert page.count("0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, … 2 more") == 2 * 2
    assert (page.count('class="arm"'), page.count("<details")) == (3, 2)
    assert "for the first 2 contexts" in page


async def test_images_are_small_pictures(url: str):
    (pixels,) = colours(1)
    config = {**QUIET, "hidden_sizes": [4]}
    async with running_api(url, **TRAINING) as api:
        await create(api, context={"kind": "image", "shape": [3, 6, 8]}, config=config)
        query = {"experiment": "doses", "request_id": "r-1", "domain": "source"}
        headers = {"content-type": "image/png"}
        answer = await api.http.post("/select", params=query, content=png(pixels), headers=headers)
        await api.reward(answer.json()["source"]["decision_id"])
        await learned(api, 1)
        sent = {"file": ("a.png", png(pixels), "image/png")}
        page = await decided(api, PLACE, files=sent)
    assert page.count('<img src="data:image/png;base64,') == 2  # the context's own, and the round's
    assert page.count("<img") == 2


async def test_a_key_that_may_not_read_the_log_sees_none_of_it(url: str):
    key = await make_key(url, TenantScope())
    weak = await make_key(url, TenantScope(), frozenset({Scope.TARGET}))
    async with running_api(url, auth="required", key_poll_seconds=0.01) as api:
        made = await api.http.post("/experiments", json=DOSES, headers=bearer(key))
        assert made.status_code == 201
        pages = []
        for each in (key, weak):
            await eventually(lambda each=each: is_in(api, each))
            answer = await api.http.post(f"{PLACE}/target", data={"text": "[0,0,0,0]"}, headers=OWN)
            assert answer.status_code == 200
            pages.append(answer.text)
        assert ["nearest examples" in page for page in pages] == [True, False]
