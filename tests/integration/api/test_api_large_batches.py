"""Requests for the decisions of many arms: refused beforehand, or worked off beside other requests."""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import httpx
import numpy as np
import pytest

from model import Asked, estimated_decisions
from service.experiment_spec import ExperimentSpec
from tests.support.api import Api

ARMS = [f"arm-{number:04d}" for number in range(1000)]
MANY: dict[str, Any] = {
    "name": "many",
    "arms": ARMS,
    "context": {"kind": "shared", "shape": [4]},
    "method": "linucb",
}
# What chooses and encodes decisions, function by function.
ENCODING = {"chosen_arms", "decision_event", "decision_answer", "_decisions", "_table"}
FLOATS = {"Content-Type": "application/octet-stream"}


def contexts(count: int) -> list[list[float]]:
    rows: list[list[float]] = np.random.default_rng(1).normal(size=(count, 4)).tolist()
    return rows


def rounds(count: int) -> list[dict[str, Any]]:
    return [
        {"request_id": f"r-{at}", "source": {"context": row}}
        for at, row in enumerate(contexts(count))
    ]


@pytest.fixture
async def many(api: Api) -> Api:
    """The app with an experiment of 1,000 arms."""
    created = await api.http.post("/experiments", json=MANY)
    assert created.status_code == 201, created.text
    return api


async def select_batch(api: Api, count: int) -> httpx.Response:
    return await api.http.post(
        "/select/batch", json={"experiment": "many", "rounds": rounds(count)}
    )


async def target_select(api: Api, count: int, **fields: Any) -> httpx.Response:
    body = {"experiment": "many", "contexts": contexts(count), **fields}
    return await api.http.post("/target/select", json=body)


async def limits_of(api: Api) -> dict[str, int]:
    limits: dict[str, int] = (await api.http.get("/experiments/many")).json()["limits"]
    return limits


@contextmanager
def calls_on_loop() -> Iterator[set[str]]:
    """The names of all functions that this thread calls, which is the event loop's."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            found.add(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


async def test_a_batch_that_takes_too_much_is_refused_with_the_largest_that_passes(many: Api):
    refused = await select_batch(many, 1000)
    problem = refused.json()
    assert (refused.status_code, problem["type"]) == (413, "/problems/batch-too-large")
    largest = problem["largest_batch"]
    assert f"At most {largest} rounds of this size pass" in problem["detail"]
    assert (await select_batch(many, largest + 1)).status_code == 413
    passed = await select_batch(many, largest)
    assert (passed.status_code, len(passed.json()["rounds"])) == (200, largest)


async def test_nothing_of_a_refused_batch_is_written(many: Api):
    await select_batch(many, 1000)
    assert await many.last_offset("many") == 0


async def test_a_thousand_contexts_of_a_thousand_arms_pass(many: Api):
    answer = await target_select(many, 1000)
    decisions = answer.json()["decisions"]
    assert (answer.status_code, len(decisions)) == (200, 1000)
    assert list(decisions[-1]["probabilities"]) == ARMS


async def test_every_way_to_the_target_policy_is_held_to_the_limit(many: Api):
    await many.http.post(
        "/experiments",
        json={**MANY, "name": "most", "arms": [f"{n:04d}" * 30 for n in range(1000)]},
    )
    numbers = np.array(contexts(1000), dtype="<f4")
    tensor = {
        "name": "context",
        "datatype": "FP32",
        "shape": [1000, 4],
        "data": numbers.ravel().tolist(),
    }
    answers = [
        await many.http.post(
            "/target/select", json={"experiment": "most", "contexts": numbers.tolist()}
        ),
        await many.http.post(
            "/target/select?experiment=most", content=numbers.tobytes(), headers=FLOATS
        ),
        await many.http.post("/v2/models/most/infer", json={"inputs": [tensor]}),
        await many.http.post(
            "/console/experiments/most/target",
            data={"text": str(numbers.tolist())},
            headers={"Origin": str(many.http.base_url).rstrip("/")},
        ),
    ]
    assert [each.status_code for each in answers] == [413] * 4
    for each in answers:
        assert "contexts of this size pass at once" in each.text


async def test_an_experiment_shows_its_largest_batches(many: Api):
    limits = await limits_of(many)
    both = [{**each, "target": each["source"]} for each in rounds(1000)]
    refused = await many.http.post("/select/batch", json={"experiment": "many", "rounds": both})
    assert limits["select_batch_rounds"] == refused.json()["largest_batch"]
    assert limits["target_select_contexts"] == 1000


async def test_estimates_are_above_what_is_answered_and_written(many: Api):
    answer = await select_batch(many, 50)
    experiment = await many.services.experiments.get("many")
    spec = ExperimentSpec.of(experiment)
    asked = Asked(50, 50 * 1000, 50 * spec.arm_name_bytes, is_logged=True)
    budget = estimated_decisions(spec.bandit_config(), asked)
    events = await many.services.event_log.read(experiment.experiment_id, after=0, limit=100)
    written = sum(len(each.payload) + len(each.context or b"") for each in events)
    assert written <= budget.event_bytes <= 3 * written
    assert len(answer.content) <= budget.answer_bytes <= 3 * len(answer.content)


async def test_many_arms_are_chosen_and_encoded_outside_the_event_loop(many: Api):
    with calls_on_loop() as called:
        assert (await select_batch(many, 50)).status_code == 200
        assert (await target_select(many, 50)).status_code == 200
    assert called & ENCODING == set()


async def test_few_arms_are_chosen_and_encoded_without_a_thread(api: Api):
    with calls_on_loop() as called:
        assert (await api.select()).status_code == 200
    assert called & ENCODING == {"chosen_arms", "decision_event", "decision_answer"}


async def test_a_long_batch_repeats_what_the_log_holds(many: Api):
    first, again = await select_batch(many, 50), await select_batch(many, 50)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.content == first.content


async def test_contexts_of_many_slices_are_answered_as_those_of_one_and_in_their_order(many: Api):
    """Passes of other sizes may round differently: arms and probabilities are the same, numbers nearly."""
    whole = (await target_select(many, 250)).json()["decisions"]
    rows = contexts(250)
    single = [
        (
            await many.http.post("/target/select", json={"experiment": "many", "context": rows[at]})
        ).json()
        for at in (0, 99, 100, 249)
    ]
    for at, each in zip((0, 99, 100, 249), single, strict=True):
        (alone,) = each["decisions"]
        assert (whole[at]["arm"], whole[at]["probabilities"]) == (
            alone["arm"],
            alone["probabilities"],
        )
        assert whole[at]["mean"] == pytest.approx(alone["mean"], abs=1e-6)


async def test_a_table_of_many_slices_is_that_of_the_decisions(many: Api):
    body = {"experiment": "many", "contexts": contexts(250)}
    answer = await many.http.post(
        "/target/select", json=body, headers={"Accept": "application/x-npy"}
    )
    table = np.load(io.BytesIO(answer.content))
    decisions = (await target_select(many, 250)).json()["decisions"]
    assert [ARMS[arm] for arm in table["arm"]] == [each["arm"] for each in decisions]
    assert table["probabilities"].tolist() == [
        list(each["probabilities"].values()) for each in decisions
    ]


async def test_an_output_can_be_asked_for_once(many: Api):
    tensor = {"name": "context", "datatype": "FP32", "shape": [1, 4], "data": [0.0] * 4}
    body = {"inputs": [tensor], "outputs": [{"name": "probabilities"}] * 2}
    answer = await many.http.post("/v2/models/many/infer", json=body)
    assert (answer.status_code, "unique" in answer.text) == (422, True)
