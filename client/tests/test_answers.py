"""Answers and bodies are those that the service describes, for every call that a lab needs."""

import inspect
import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import httpx
import msgspec
import pytest
from msgspec import inspect as shapes

from daband_client import Client, Round, answers
from daband_client.calls import Call

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "client.md").read_text()
API = json.loads((DOCS / "openapi.json").read_text())
SCHEMAS = API["components"]["schemas"]
# What operators and browsers ask for.
NOT_OURS = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/metrics"),
    ("GET", "/problems/{slug}"),
    ("GET", "/experiments/{name}/log/export"),  # a file of any size: `daband log export`
    ("POST", "/evaluations/file"),  # `daband evaluate --log`, where the file is
}
OTHER_PROTOCOLS = ("/v2", "/ofrep/")  # they have clients of their own
# Made by the client, not sent by the service.
MADE_HERE = {(answers.State, "noted")}
PLAIN: dict[type[shapes.Type], str] = {
    shapes.StrType: "string",
    shapes.IntType: "integer",
    shapes.FloatType: "number",
    shapes.BoolType: "boolean",
    shapes.NoneType: "null",
}
SHARED = {"kind": "shared", "shape": [1]}
CALLS: dict[str, Callable[[Client], Any]] = {
    "create_experiment": lambda c: c.create_experiment("doses", ["low"], SHARED),
    "experiments": lambda c: c.experiments(),
    "experiment": lambda c: c.experiment("doses"),
    "state": lambda c: c.state("doses"),
    "set_status": lambda c: c.set_status("doses", "paused", "ann", "why"),
    "delete_experiment": lambda c: c.delete_experiment("doses", "ann", "why"),
    "open_target": lambda c: c.open_target("doses", 0.9, "ann", "why"),
    "audit": lambda c: c.audit("doses"),
    "acts": lambda c: c.acts(),
    "select": lambda c: c.select("doses", Round([1.0], [1.0], ["low"])),
    "select_many": lambda c: c.select_many("doses", [Round([1.0])]),
    "reward": lambda c: c.reward("d", 1),
    "reward_many": lambda c: c.reward_many({"d": 1}),
    "target_select": lambda c: c.target_select("doses", [[1.0]], 0.5, eligible_arms=["low"]),
    "nearest": lambda c: c.nearest("doses", [[1.0]], 5, ["low"]),
    "import_history": lambda c: c.import_history(
        "doses", b"", arm="dose", reward="gain", ignore=["tail"], media="text/csv"
    ),
    "upload_contexts": lambda c: c.upload_contexts("doses", [[1.0]]),
    "transfer": lambda c: c.transfer("doses"),
    "log": lambda c: c.log("doses", 9, domain="source", arm="low", rewarded=True),
    "decision": lambda c: c.decision("doses", "d-1"),
    "learning": lambda c: c.learning("doses", "target", 10),
    "latents": lambda c: c.latents("doses", 10),
    "report": lambda c: c.report("doses"),
    "snapshots": lambda c: c.snapshots("doses"),
    "restore": lambda c: c.restore("doses", 1, "ann", "why"),
    "policy": lambda c: c.policy("doses", 1),
    "candidates": lambda c: c.candidates("doses"),
    "promote": lambda c: c.promote("doses", 1, "ann", "why"),
    "train": lambda c: c.train("doses", "ann", "why"),
    "candidate_policy": lambda c: c.candidate_policy("doses", 1),
    "evaluate": lambda c: c.evaluate("doses", [{"kind": "uniform"}]),
    "evaluations": lambda c: c.evaluations(),
    "evaluation": lambda c: c.evaluation("e"),
    "cancel_evaluation": lambda c: c.cancel_evaluation("e"),
    "evaluation_report": lambda c: c.evaluation_report("e"),
}
SENDING = {"wait_until_trained", "close", "send", "url"}


class NotSentError(Exception):
    """A call that would have been sent."""

    def __init__(self, call: Call[Any]) -> None:
        self.call = call


class Recorder(Client):
    """Sends nothing."""

    def send(self, call: Call[Any]) -> NoReturn:
        raise NotSentError(call)


def sent(name: str) -> Call[Any]:
    with pytest.raises(NotSentError) as seen:
        CALLS[name](Recorder())
    call: Call[Any] = seen.value.call
    return call


def route(call: Call[Any]) -> tuple[str, str]:
    """The method and path as they are described; a path as it stands before one with places."""
    path = call.path.partition("?")[0]
    for template in sorted(API["paths"], key=lambda each: each.count("{")):
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path) and (
            call.method.lower() in API["paths"][template]
        ):
            return call.method, template
    raise AssertionError(f"{call.method} {call.path} is no route of the service")


def described(call: Call[Any]) -> Any:
    method, template = route(call)
    return API["paths"][template][method.lower()]


def resolved(schema: Any) -> Any:
    while "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    return schema


def differences(kind: shapes.Type, schema: Any, place: str) -> Iterator[str]:
    """Where an answer of this schema could not be read as this type."""
    schema = resolved(schema)
    options = [resolved(each) for each in schema.get("anyOf", [schema])]
    if isinstance(kind, shapes.AnyType):
        return
    if isinstance(kind, shapes.UnionType):
        for option in options:
            if not any(not list(differences(each, option, place)) for each in kind.types):
                yield f"{place}: {option} is none of {kind.types}"
        return
    for option in options:
        yield from _differences(kind, option, place)


def _differences(kind: shapes.Type, schema: Any, place: str) -> Iterator[str]:
    if isinstance(kind, shapes.StructType):
        yield from _fields(kind, schema, place)
    elif isinstance(kind, shapes.ListType | shapes.TupleType | shapes.DictType):
        yield from _items(kind, schema, place)
    elif isinstance(kind, shapes.DateTimeType):
        if schema.get("format") != "date-time":
            yield f"{place}: {schema} is no time"
    else:
        types = {PLAIN[type(kind)]} | ({"integer"} if isinstance(kind, shapes.FloatType) else set())
        if schema.get("type") not in types:
            yield f"{place}: {schema} is no {kind}"


def _items(
    kind: shapes.ListType | shapes.TupleType | shapes.DictType, schema: Any, place: str
) -> Iterator[str]:
    wanted = "object" if isinstance(kind, shapes.DictType) else "array"
    if schema.get("type") != wanted:
        yield f"{place}: {schema} is no {wanted}"
    elif isinstance(kind, shapes.ListType):
        yield from differences(kind.item_type, schema["items"], f"{place}[]")
    elif isinstance(kind, shapes.TupleType):
        for item, each in zip(kind.item_types, schema["prefixItems"], strict=True):
            yield from differences(item, each, f"{place}[]")
    elif isinstance(values := schema.get("additionalProperties", True), dict):
        yield from differences(kind.value_type, values, f"{place}{{}}")


def _fields(kind: shapes.StructType, schema: Any, place: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for field in kind.fields:
        here = f"{place}.{field.name}"
        if (kind.cls, field.name) in MADE_HERE:
            continue
        if field.encode_name not in properties:
            yield f"{here} is not in the description"
            continue
        if field.required and field.encode_name not in schema.get("required", []):
            yield f"{here} may be left out by the service"
        yield from differences(field.type, properties[field.encode_name], here)


def test_every_method_is_a_call_that_is_looked_at_here() -> None:
    methods = {name for name, _ in inspect.getmembers(Client) if not name.startswith("_")}
    assert methods - SENDING == set(CALLS)


def test_every_method_is_in_the_reference() -> None:
    for name in CALLS:
        assert f"| `{name}(" in PAGE


def test_every_route_that_a_lab_needs_has_a_method() -> None:
    offered = {
        (method.upper(), path)
        for path, methods in API["paths"].items()
        for method in methods
        if not path.startswith(OTHER_PROTOCOLS)
    }
    assert {route(sent(name)) for name in CALLS} == offered - NOT_OURS


@pytest.mark.parametrize("name", CALLS)
def test_an_answer_is_read_as_it_is_described(name: str) -> None:
    call = sent(name)
    for status, answer in described(call)["responses"].items():
        if not status.startswith("2") or call.answer is str:
            continue
        ((_, content),) = list(answer["content"].items())[:1]
        if call.answer is bytes:
            assert content["schema"]["format"] == "binary"
            continue
        found = list(differences(msgspec.inspect.type_info(call.answer), content["schema"], name))
        assert found == []


@pytest.mark.parametrize("name", CALLS)
def test_a_body_has_the_fields_that_are_described(name: str) -> None:
    call = sent(name)
    parameters = {each["name"] for each in described(call).get("parameters", [])}
    asked = re.findall(r"[?&](\w+)=", call.path)
    assert set(asked) <= parameters
    contents = described(call).get("requestBody", {}).get("content", {})
    assert (call.body is None) == (not contents)
    if call.body is not None:
        assert call.media in contents
    if isinstance(call.body, dict):
        schema = resolved(contents[call.media]["schema"])
        assert set(schema.get("required", [])) <= set(call.body) <= set(schema["properties"])


def test_a_difference_is_found() -> None:
    class Wrong(msgspec.Struct):
        name: int
        nickname: str
        created_at: datetime

    found = list(differences(shapes.type_info(Wrong), SCHEMAS["Experiment"], "it"))
    assert len(found) == 2
    assert "it.name" in found[0]
    assert found[1] == "it.nickname is not in the description"


def test_what_a_newer_service_adds_is_ignored() -> None:
    text = b'{"decision_id": "d", "status": "new word", "offset": 1, "new field": {"a": 1}}'
    assert msgspec.json.decode(text, type=answers.Rewarded).status == "new word"


def test_what_the_trainer_notes_is_kept() -> None:
    state = {
        "experiment": "doses",
        "phase": "zero_shot",
        "status": "active",
        "counts": {},
        "policy_version": 1,
        "encoder_version": 0,
        "state_hash": None,
        "head_offset": 0,
        "folded_offset": 0,
        "lag": 0,
        "snapshot_at": None,
    }
    noted = {"episode": 3, "is_training": False}
    answer = httpx.Response(200, json=state | noted)
    found = Call("GET", "/", answers.State).read(answer)
    assert found.noted == noted
    assert found.training.status == "idle"
    assert Call("GET", "/", answers.State).read(httpx.Response(200, json=state)).noted == {}
