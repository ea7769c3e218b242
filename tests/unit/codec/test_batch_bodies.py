"""A batch says what its rounds say one by one, whichever way it is read."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, strategies as st

from model.config import ContextKind
from service.codec import batch_bodies
from service.codec.batch_bodies import BatchBody
from service.codec.bodies import MAX_BATCH, MediaType, SelectBatchBody, decode
from service.codec.contexts import sides_of
from service.errors import InvalidRequest
from service.experiment_spec import ExperimentSpec

ARMS = ("low", "mid", "high")
SHARED = ExperimentSpec("doses", ARMS, ContextKind.SHARED, (2,))
IMAGES = ExperimentSpec("images", ARMS, ContextKind.SHARED, (1, 2, 3))
OWN = ExperimentSpec("offers", ARMS, ContextKind.PER_ARM, (2,))
ROUNDS = [
    '{"source": {"context": [1, 2]}}',
    '{"target": {"context": [3, 4.5]}, "request_id": "r-1"}',
    '{"source": {"context": [1e38, -1e38]}}',
    '{"source": {"context": [1, 2]}, "target": {"context": [3, 4]}}',
    '{"source": {"context": [1, 2]}, "eligible_arms": ["low"]}',
    '{"source": {"context": [1e39, 2]}}',
    '{"source": {"context": [1, 2, 3, 4]}}',
    '{"source": {"context": []}}',
    '{"source": {"context": ["1", 2]}}',
    '{"source": {"context": [true, 2]}}',
    '{"source": {"context": [null, 2]}}',
    '{"source": {"context": [[1, 2]]}}',
    '{"source": {"context": 1}}',
    '{"source": {"contexts": {"low": [1, 2]}}}',
    '{"source": {}}',
    '{"source": null, "target": null}',
    "{}",
]


def batch(rounds: list[str]) -> bytes:
    return f'{{"experiment": "e", "rounds": [{", ".join(rounds)}]}}'.encode()


def outcome_of(make: Any) -> Any:
    try:
        found = make()
    except InvalidRequest as refused:
        return refused.members["errors"]
    return [[(each.domain, each.arms, each.content) for each in some] for some in found]


@pytest.mark.parametrize("spec", [SHARED, IMAGES, OWN])
@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_each_kind_of_round_is_read_in_a_batch_as_alone(spec: ExperimentSpec, number: int):
    for rounds in ([ROUNDS[number]], [ROUNDS[0], ROUNDS[number]], [ROUNDS[number], ROUNDS[1]]):
        check_as_alone(spec, rounds)


@pytest.mark.parametrize("spec", [SHARED, IMAGES, OWN])
@given(st.lists(st.sampled_from(ROUNDS), min_size=1, max_size=4))
def test_a_batch_is_read_as_each_of_its_rounds(spec: ExperimentSpec, rounds: list[str]):
    check_as_alone(spec, rounds)


def check_as_alone(spec: ExperimentSpec, rounds: list[str]) -> None:
    body = decode(batch(rounds), SelectBatchBody)
    alone = outcome_of(
        lambda: [
            sides_of(spec, each, MediaType.JSON, f"#/rounds/{index}")
            for index, each in enumerate(body.rounds)
        ]
    )
    asked = BatchBody(batch(rounds), MediaType.JSON)
    assert outcome_of(lambda: asked.sides(spec)) == alone
    assert asked.experiment == "e"
    assert asked.request_ids == [each.request_id for each in body.rounds]


@pytest.mark.parametrize("media", [MediaType.JSON, MediaType.MSGPACK])
def test_plain_rounds_are_read_at_once(monkeypatch: pytest.MonkeyPatch, media: MediaType):
    monkeypatch.delattr(batch_bodies, "sides_of")  # or the quick way would be gone unnoticed
    value = json.loads(batch(ROUNDS[:2]))
    content = msgspec.msgpack.encode(value) if media is MediaType.MSGPACK else batch(ROUNDS[:2])
    (source,), (target,) = BatchBody(content, media).sides(SHARED)
    assert np.frombuffer(source.content, "<f4").tolist() == [1, 2]
    assert np.frombuffer(target.content, "<f4").tolist() == [3, 4.5]


@pytest.mark.parametrize(
    ("content", "pointer"),
    [
        (b"", "#"),
        (b"[]", "#"),
        (batch([]), "#/rounds"),
        (batch(ROUNDS[:1] * (MAX_BATCH + 1)), "#/rounds"),
        (batch([*ROUNDS[:2], '{"reward": 1}']), "#/rounds/2"),
        (b'{"experiment": 1, "rounds": [{}]}', "#/experiment"),
    ],
)
def test_what_is_no_batch_is_refused_where_it_is_none(content: bytes, pointer: str):
    with pytest.raises(InvalidRequest) as refused:
        BatchBody(content, MediaType.JSON)
    assert refused.value.members["errors"][0]["pointer"] == pointer
