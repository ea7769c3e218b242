"""OpenFeature remote evaluation: openfeature-sdk with its OFREP provider, unchanged."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from openfeature import api as openfeature
from openfeature.client import OpenFeatureClient
from openfeature.contrib.provider.ofrep import OFREPProvider
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason

from service.codec.protocols.flags import request_id
from tests.integration.protocols.conftest import Guarded
from tests.support.api import CONTEXT
from tests.support.keys import bearer
from tests.support.tables import MOUSE

VECTOR = {"context": CONTEXT}
FLAGS = "/ofrep/v1/evaluate/flags"


def flags_of(guarded: Guarded, key: str) -> OpenFeatureClient:
    provider = OFREPProvider(guarded.url, headers_factory=lambda: bearer(key))
    openfeature.set_provider(provider, domain=key)
    return openfeature.get_client(domain=key)


@pytest.fixture
def flags(guarded: Guarded) -> Iterator[OpenFeatureClient]:
    yield flags_of(guarded, guarded.owner)
    openfeature.clear_providers()


def user(name: str | None = "ada", **attributes: Any) -> EvaluationContext:
    return EvaluationContext(name, attributes or VECTOR)


def asked(guarded: Guarded, path: str = FLAGS, **options: Any) -> httpx.Response:
    headers = {**bearer(guarded.owner), **options.pop("headers", {})}
    return guarded.http.post(guarded.url + path, headers=headers, **options)


def last_offset(guarded: Guarded, experiment: str) -> int:
    with guarded.client() as client:
        return client.state(experiment).head_offset


def test_a_flag_is_a_decision_of_the_source_that_can_be_rewarded(
    guarded: Guarded, flags: OpenFeatureClient
):
    found = flags.get_string_details("doses", "none", user("rewarded"))
    assert found.error_code is None, found.error_message
    assert (found.value, found.reason) == (found.variant, Reason.SPLIT)
    assert found.value in ("low", "mid", "high")
    assert 0 < float(found.flag_metadata["probability"]) <= 1
    assert found.flag_metadata["policy_version"] == 2
    with guarded.client() as client:
        rewarded = client.reward(str(found.flag_metadata["decision_id"]), 1.0)
    assert rewarded.status == "created"


def test_the_same_user_gets_the_same_decision(guarded: Guarded, flags: OpenFeatureClient):
    before = last_offset(guarded, "doses")
    first, again = (flags.get_string_details("doses", "none", user("grace")) for _ in range(2))
    other = flags.get_string_details("doses", "none", user("alan"))
    moved = flags.get_string_details("doses", "none", user("grace", context=[1, 2, 3, 4]))
    assert first.value == again.value
    assert first.flag_metadata == again.flag_metadata
    ids = {each.flag_metadata["decision_id"] for each in (first, again, other, moved)}
    assert len(ids) == 3
    assert last_offset(guarded, "doses") == before + 3


def test_the_request_is_named_by_user_context_and_policy():
    named = request_id("ada", 2, "digest")
    assert named == request_id("ada", 2, "digest")
    others = [("bob", 2, "digest"), ("ada", 3, "digest"), ("ada", 2, "other")]
    assert named not in {request_id(*each) for each in others}
    assert "ada" not in named
    assert len(named) <= 128


def test_columns_are_attributes_and_others_are_ignored(flags: OpenFeatureClient):
    found = flags.get_string_details("mice", "none", user("ada", **MOUSE, country="nl"))
    assert found.error_code is None, found.error_message
    assert found.value in ("low", "mid", "high")


def test_arms_may_have_contexts_of_their_own(flags: OpenFeatureClient):
    contexts = {"low": CONTEXT, "mid": CONTEXT}
    for key in ("offers", "offers@target"):
        found = flags.get_string_details(key, "none", user("ada", contexts=contexts))
        assert found.value in contexts


def test_true_and_false_are_booleans(flags: OpenFeatureClient):
    found = flags.get_boolean_details("switch", default_value=True, evaluation_context=user())
    assert found.error_code is None, found.error_message
    assert found.variant == ("true" if found.value else "false")


@pytest.mark.parametrize(
    ("key", "context", "code", "text"),
    [
        ("nothing", user(), ErrorCode.FLAG_NOT_FOUND, "no experiment of this name"),
        ("doses@source", user(), ErrorCode.FLAG_NOT_FOUND, "no experiment of this name"),
        ("doses", user(None), ErrorCode.TARGETING_KEY_MISSING, "targetingKey"),
        ("doses", user(context=[1]), ErrorCode.INVALID_CONTEXT, "#/source/context"),
        ("doses@target", user(context=[1]), ErrorCode.INVALID_CONTEXT, "#/context"),
        ("doses", user(other=1), ErrorCode.INVALID_CONTEXT, "the field `context`"),
        ("mice", user(age=1), ErrorCode.INVALID_CONTEXT, "Column `strain` is missing"),
        ("offers", user(), ErrorCode.INVALID_CONTEXT, "the field `contexts`"),
        ("offers", user(contexts=3), ErrorCode.INVALID_CONTEXT, "#/contexts"),
    ],
)
def test_what_cannot_be_evaluated_gives_the_default(
    flags: OpenFeatureClient, key: str, context: EvaluationContext, code: ErrorCode, text: str
):
    found = flags.get_string_details(key, "mine", context)
    assert (found.value, found.error_code, found.reason) == ("mine", code, Reason.ERROR)
    assert text in (found.error_message or "")


def test_another_tenant_finds_no_flag(guarded: Guarded):
    for key, code in ((guarded.stranger, ErrorCode.FLAG_NOT_FOUND), ("x", ErrorCode.GENERAL)):
        found = flags_of(guarded, key).get_string_details("doses", "mine", user())
        assert (found.value, found.error_code) == ("mine", code)
    openfeature.clear_providers()


def test_the_scope_is_that_of_the_flags_domain(guarded: Guarded):
    weak = bearer(guarded.weak)  # without the scope `target`
    body = {"context": {"targetingKey": "ada", **VECTOR}}
    assert asked(guarded, f"{FLAGS}/doses", json=body, headers=weak).status_code == 200
    for path in (f"{FLAGS}/doses@target", FLAGS):
        refused = asked(guarded, path, json=body, headers=weak)
        assert (refused.status_code, refused.json()["errorCode"]) == (403, "GENERAL")
        assert "target" in refused.json()["errorDetails"]


def test_a_target_flag_is_the_frozen_policys_and_writes_nothing(
    guarded: Guarded, flags: OpenFeatureClient
):
    before = last_offset(guarded, "doses")
    found = flags.get_string_details("doses@target", "none", user(None))
    with guarded.client() as client:
        (decision,) = client.target_select("doses", [CONTEXT]).decisions
    assert (found.value, found.reason) == (decision.arm, Reason.TARGETING_MATCH)
    assert found.flag_metadata == {
        "probability": decision.probabilities[str(decision.arm)],
        "expected_value": decision.mean,
        "transfer_confidence": decision.transfer_confidence,
        "policy_version": 2,
    }
    assert last_offset(guarded, "doses") == before


def test_a_paused_experiment_gives_the_applications_default(
    guarded: Guarded, flags: OpenFeatureClient
):
    with guarded.client() as client:
        client.set_status("cells", "paused")
    found = flags.get_string_details("cells", "mine", user(context=[[[0.0] * 8] * 6] * 3))
    assert (found.value, found.reason, found.error_code) == ("mine", Reason.DISABLED, None)


def test_all_flags_are_the_targets_and_write_nothing(guarded: Guarded):
    body = {"context": {**VECTOR, "targetingKey": "ada"}}
    before = last_offset(guarded, "doses")
    answer = asked(guarded, json=body)
    found = {each["key"]: each for each in answer.json()["flags"]}
    assert {"doses@target", "offers@target", "mice@target", "switch@target"} <= found.keys()
    alone = asked(guarded, f"{FLAGS}/doses@target", json=body).json()
    assert found["doses@target"] == alone
    assert found["mice@target"]["errorCode"] == "INVALID_CONTEXT"
    assert last_offset(guarded, "doses") == before


def test_unchanged_flags_are_not_sent_again(guarded: Guarded):
    body = {"context": VECTOR}
    tag = asked(guarded, json=body).headers["etag"]
    for known in (tag, f'"other", W/{tag}'):
        again = asked(guarded, json=body, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    changed = asked(
        guarded, json={"context": {"context": [9, 9, 9, 9]}}, headers={"If-None-Match": tag}
    )
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


@pytest.mark.parametrize("path", [FLAGS, f"{FLAGS}/doses"])
@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"context": 3}'])
def test_a_body_that_is_none_is_a_parse_error(guarded: Guarded, path: str, content: bytes):
    answer = asked(guarded, path, content=content)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "PARSE_ERROR")
    assert ("key" in answer.json()) == path.endswith("doses")


def test_a_request_without_a_key_has_the_protocols_shape(guarded: Guarded):
    answer = guarded.http.post(f"{guarded.url}{FLAGS}/doses", json={})
    assert (answer.status_code, answer.json()["errorCode"]) == (401, "GENERAL")


def test_a_user_that_is_no_utf_8_is_refused(guarded: Guarded):
    body = b'{"context": {"targetingKey": "\xff", "context": [0, 0, 0, 0]}}'
    answer = asked(guarded, f"{FLAGS}/doses", content=body)
    assert (answer.status_code, answer.json()["errorCode"]) == (400, "TARGETING_KEY_MISSING")
