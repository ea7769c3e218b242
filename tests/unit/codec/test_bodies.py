"""Bodies are decoded strictly, and refused by their place."""

from typing import Any

import msgspec
import pytest

from service.codec.bodies import (
    MAX_BATCH,
    ExperimentBody,
    MediaType,
    RewardBatchBody,
    RewardBody,
    SelectBatchBody,
    SelectBody,
    decode,
    media_type,
)
from service.errors import InvalidRequest, UnsupportedMediaType
from service.records import check_identifier


def refusal(body: bytes, kind: type, media: MediaType = MediaType.JSON) -> dict[str, str]:
    with pytest.raises(InvalidRequest) as refused:
        decode(body, kind, media)
    (place,) = refused.value.members["errors"]
    found: dict[str, str] = place
    return found


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b"", "#"),
        (b"{", "#"),
        (b"[]", "#"),
        (b"null", "#"),
        (b"{}", "#"),
        (b'{"experiment": 1}', "#/experiment"),
        (b'{"experiment": ""}', "#/experiment"),
        (b'{"experiment": "a", "requestId": "secret"}', "#"),
        (b'{"experiment": "a", "source": {"x": "secret"}}', "#/source"),
        (b'{"experiment": "a", "source": {"contexts": {"": 1}}}', "#/source/contexts"),
        (b'{"experiment": "a", "eligible_arms": ["b", 2]}', "#/eligible_arms/1"),
        (b'{"experiment": "\xff"}', "#"),
        (b'{"experiment": "\\ud800"}', "#"),
        (b'{"experiment": "a", "source": {"context": [NaN]}}', "#"),
        (b"[" * 1_000_000, "#"),
        (b'{"experiment": "a", "source": {"context": ' + b"[" * 100_000, "#"),
    ],
)
def test_a_bad_body_is_refused_at_its_place(body: bytes, pointer: str):
    place = refusal(body, SelectBody)
    assert place["pointer"] == pointer
    assert "secret" not in place["detail"]


@pytest.mark.parametrize("media", [MediaType.JSON, MediaType.MSGPACK])
def test_an_empty_body_is_called_empty(media: MediaType):
    assert refusal(b"", SelectBody, media) == {"pointer": "#", "detail": "The body is empty."}


@pytest.mark.parametrize(
    ("body", "kind", "detail"),
    [
        (
            b'{"experiment": "a", "requestId": "r"}',
            SelectBody,
            "Unknown field `requestId`. Allowed: request_id, source, target, eligible_arms, experiment.",
        ),
        (
            b'{"experiment": "a", "source": {"x": 1}}',
            SelectBody,
            "Unknown field `x`. Allowed: context, contexts.",
        ),
        (
            b'{"rewards": [{"decision_id": "d", "reward": 1, "at": 2}]}',
            RewardBatchBody,
            "Unknown field `at`. Allowed: decision_id, reward.",
        ),
        (
            b'{"decision_id": "d", "reward": 1, "' + b"x" * 100 + b'": 2}',
            RewardBody,
            f"Unknown field `{'x' * 64}`. Allowed: decision_id, reward.",
        ),
    ],
)
def test_an_unknown_field_is_named_with_the_allowed_ones(body: bytes, kind: Any, detail: str):
    assert refusal(body, kind)["detail"] == detail


def batch(*rounds: str) -> bytes:
    return f'{{"experiment": "e", "rounds": [{", ".join(rounds)}]}}'.encode()


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (batch(), "#/rounds"),
        (batch(*["{}"] * (MAX_BATCH + 1)), "#/rounds"),
        (batch("{}", "{}", '{"reward": 1}'), "#/rounds/2"),
        (b'{"experiment": 1, "rounds": [{}]}', "#/experiment"),
    ],
)
def test_what_is_no_batch_is_refused_where_it_is_none(body: bytes, pointer: str):
    assert refusal(body, SelectBatchBody)["pointer"] == pointer


def test_deep_nesting_is_refused_in_every_format():
    deep = b'{"name": "a", "context": {"kind": "shared", "shape": [1]}, "config": {"x": '
    assert refusal(deep + b"[" * 100_000, ExperimentBody)["detail"] == "Nested too deeply."
    packed = b"\x81\xa6config\x81\xa1x" + b"\x91" * 100_000
    assert refusal(packed, ExperimentBody, MediaType.MSGPACK)["detail"] == "Nested too deeply."


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 2.0, True, "1"])
def test_msgpack_rewards_are_numbers_between_0_and_1(value: Any):
    body = msgspec.msgpack.encode({"decision_id": "d", "reward": value})
    assert refusal(body, RewardBody, MediaType.MSGPACK)["pointer"] == "#/reward"


def test_a_good_body_is_decoded():
    assert decode(b'{"decision_id": "d", "reward": 1}', RewardBody) == RewardBody("d", 1.0)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, MediaType.JSON),
        ("application/json", MediaType.JSON),
        ("Application/JSON; charset=utf-8", MediaType.JSON),
        ("application/msgpack", MediaType.MSGPACK),
    ],
)
def test_media_types_are_known_by_their_names(header: str | None, expected: MediaType):
    assert media_type(header) is expected


@pytest.mark.parametrize("header", ["text/plain", "application/octet-stream", "json", ";", "é"])
def test_other_media_types_are_refused(header: str):
    with pytest.raises(UnsupportedMediaType):
        media_type(header)


@pytest.mark.parametrize("value", ["a", "é" * 64, "😀", "a\u0301", "\u202e", " ", "a/b"])
def test_ids_are_opaque(value: str):
    assert check_identifier(value, "#") == value


@pytest.mark.parametrize("value", ["", "a" * 129, "é" * 65, "a\0b", "\ud800"])
def test_ids_that_no_database_can_hold_are_refused(value: str):
    with pytest.raises(InvalidRequest):
        check_identifier(value, "#/request_id")
