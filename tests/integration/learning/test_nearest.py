"""The nearest source rounds of target contexts over HTTP."""

from base64 import b64decode
from typing import Any

import pytest

from service.deciding import nearest
from tests.support.api import OFFERS, TAUGHT, Api, running_api
from tests.support.images import as_json, colours, pixels_of, png
from tests.support.learning import EPISODE, TRAINING, create, idle_state, play

PATH = "/experiments/doses/nearest"
QUIET = {**TAUGHT["config"], "episode_length": 10_000}
COLUMNS = [
    {"name": "age", "type": "numeric", "missing": True, "fill": 4},
    {"name": "strain", "type": "categorical", "values": ["B6", "BALB"], "missing": True},
    {"name": "stage", "type": "ordinal", "values": ["I", "II", "III"]},
    {"name": "treated", "type": "boolean"},
]
ROWS: list[dict[str, Any]] = [
    {"age": 3.1, "strain": "B6", "stage": "I", "treated": True},
    {"age": None, "strain": None, "stage": "III", "treated": False},
    {"age": 80.0, "strain": "CD1", "stage": "II", "treated": True},
]


async def nearest_of(api: Api, path: str = PATH, **body: Any) -> dict[str, Any]:
    answer = await api.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def played(api: Api, name: str, sides: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The source's decisions for these sides, each with a reward, once they are learned."""
    found = []
    for number, side in enumerate(sides):
        body = {"experiment": name, "request_id": f"r-{number}", "source": side}
        answer = (await api.http.post("/select", json=body)).json()["source"]
        await api.reward(answer["decision_id"], number / len(sides))
        found.append(answer)
    if name == "doses":
        await idle_state(api, len(sides))
    return found


async def test_an_exact_copy_is_nearest_to_itself(url):
    async with running_api(url, **TRAINING) as api:
        await create(api)
        await play(api, EPISODE)
        await idle_state(api, EPISODE)
        log = (await api.http.get("/experiments/doses/log?domain=source")).json()["entries"]
        own = {each["decision_id"]: each for each in log}
        every = await nearest_of(api, context=[0.0, 0.0, 0.0, 0.0], count=EPISODE)
        rounds = every["contexts"][0]["nearest"]
        copies = await nearest_of(api, contexts=[each["context"] for each in rounds], count=1)
    assert (every["sampled"], len(rounds), every["encoder_version"]) == (EPISODE, EPISODE, 1)
    assert (every["first_offset"], every["last_offset"]) == (
        min(each["offset"] for each in rounds),
        max(each["offset"] for each in rounds),
    )
    distances = [each["distance"] for each in rounds]
    assert distances == sorted(distances)
    assert distances[-1] > distances[0]
    for each, copy in zip(rounds, copies["contexts"], strict=True):
        (first,) = copy["nearest"]
        assert first["context"] == each["context"]
        assert first["distance"] < 1e-3
        logged = own[each["decision_id"]]
        assert (each["arm"], each["reward"]) == (logged["arm"], logged["reward"]["reward"])


async def test_only_what_was_learned_is_sampled_and_no_more_than_the_bound(url, monkeypatch):
    async with running_api(url, **TRAINING) as api:
        await create(api, config=QUIET)
        await play(api, 6)
        await idle_state(api, 6)
        await api.decide()  # without a reward
        monkeypatch.setattr(nearest, "MOST_SAMPLED", 4)
        found = await nearest_of(api, context=[0.1, 0.2, 0.3, 0.4], count=20)
    log_offsets = [each["offset"] for each in found["contexts"][0]["nearest"]]
    assert (found["sampled"], len(log_offsets)) == (4, 4)
    assert found["last_offset"] == max(log_offsets) < 20


async def test_before_anything_is_learned_there_is_none(url):
    async with running_api(url) as api:
        await create(api)
        await api.reward(await api.decide())
        found = await nearest_of(api, contexts=[[0.0] * 4] * 2)
    assert (found["sampled"], found["first_offset"], found["policy_version"]) == (0, None, 0)
    assert found["contexts"] == [{"nearest": []}, {"nearest": []}]


async def test_rows_come_back_with_their_columns(url):
    async with running_api(url, **TRAINING) as api:
        await create(api, context={"kind": "table", "columns": COLUMNS}, config=QUIET)
        await played(api, "doses", [{"context": row} for row in ROWS])
        found = await nearest_of(api, contexts=ROWS, count=1)
    shown = [each["nearest"][0]["context"] for each in found["contexts"]]
    assert shown == [*ROWS[:2], {**ROWS[2], "strain": "(other)"}]


async def test_images_come_back_as_files(url):
    pixels = colours(3)
    config = {**QUIET, "hidden_sizes": [4]}
    async with running_api(url, **TRAINING) as api:
        await create(api, context={"kind": "image", "shape": [3, 6, 8]}, config=config)
        for number, each in enumerate(pixels):
            query = {"experiment": "doses", "request_id": f"r-{number}", "domain": "source"}
            answer = await api.http.post(
                "/select", params=query, content=png(each), headers={"content-type": "image/png"}
            )
            await api.reward(answer.json()["source"]["decision_id"])
        await idle_state(api, len(pixels))
        found = await nearest_of(api, context=as_json(png(pixels[1])))
    contents = [b64decode(each["context"]["image"]) for each in found["contexts"][0]["nearest"]]
    shown = {pixels_of(content).tobytes() for content in contents}
    assert shown == {each.tobytes() for each in pixels}


async def test_the_chosen_arm_is_compared_where_each_has_its_own(url):
    async with running_api(url, **TRAINING) as api:
        await create(api, **{**OFFERS, "name": "doses", "config": QUIET})
        offers = [
            {arm: [float(number), place, 1.0, 0.5] for place, arm in enumerate(TAUGHT["arms"])}
            for number in range(3)
        ]
        made = await played(api, "doses", [{"contexts": each} for each in offers])
        found = await nearest_of(api, contexts=offers[:2], count=3)
    given = {
        each["decision_id"]: offer[each["arm"]] for each, offer in zip(made, offers, strict=True)
    }
    assert len(found["contexts"]) == 2
    for each in found["contexts"]:
        assert {one["decision_id"]: one["context"] for one in each["nearest"]} == given


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#"),
        ({"context": [1, 2]}, "#/context"),
        ({"contexts": []}, "#/contexts"),
        ({"contexts": [[0, 0, 0, 0]] * 51, "count": 2}, "#/contexts"),
        ({"context": [0, 0, 0, 0], "count": 0}, "#/count"),
        ({"context": [0, 0, 0, 0], "count": 21}, "#/count"),
        ({"context": [0, 0, 0, 0], "store": True}, "#"),
    ],
)
async def test_a_bad_question_is_refused(url, body: dict[str, Any], pointer: str):
    async with running_api(url) as api:
        await create(api)
        answer = await api.http.post(PATH, json=body)
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer)
