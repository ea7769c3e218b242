"""The OpenAPI description of a body says what its decoder accepts: names, required fields, bounds."""

from typing import Any

import pytest
from msgspec import NODEFAULT, inspect
from pydantic import BaseModel

from service.codec import answers, bodies, requests
from service.columns.schema import DeclaredColumn
from service.evaluating.request import EvaluationRequest
from service.routes.browsing.nearest import NearestBody

PAIRS: list[tuple[Any, type[BaseModel]]] = [
    (bodies.SideBody, requests.SideRequest),
    (bodies.RoundBody, requests.RoundRequest),
    (bodies.SelectBody, requests.SelectRequest),
    (bodies.SelectBatchBody, requests.SelectBatchRequest),
    (bodies.RewardBody, requests.RewardRequest),
    (bodies.RewardBatchBody, requests.RewardBatchRequest),
    (bodies.TargetSelectBody, requests.TargetSelectRequest),
    (NearestBody, requests.NearestRequest),
    (bodies.ContextBody, requests.ContextRequest),
    (bodies.ImageBody, requests.ImageRequest),
    (DeclaredColumn, requests.ColumnRequest),
    (bodies.ExperimentBody, requests.ExperimentRequest),
    (bodies.StatusBody, requests.StatusRequest),
    (bodies.PhaseBody, requests.PhaseRequest),
    (bodies.AuditBody, requests.AuditRequest),
    (EvaluationRequest, answers.EvaluationRequest),
]
# What msgspec and JSON schema call the same bound.
BOUNDS = {
    "min_length": ("minLength", "minItems"),
    "max_length": ("maxLength", "maxItems"),
    "ge": ("minimum",),
    "le": ("maximum",),
    "gt": ("exclusiveMinimum",),
    "lt": ("exclusiveMaximum",),
}
# Checked by `ExperimentSpec`, by the look-up of the name, or against the declared shape.
CHECKED_LATER = {"name", "experiment", "arms", "context", "contexts", "shape", "seed"}
CHECKED_LATER |= {"columns", "unit", "values", "fill"}  # by `TableSchema`


def decoded_bounds(kind: Any) -> dict[str, Any]:
    """What limits the values of a struct's field."""
    if isinstance(kind, inspect.UnionType):
        (kind,) = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
    found = {name: getattr(kind, name, None) for name in BOUNDS}
    if isinstance(kind, inspect.ListType | inspect.VarTupleType):
        found["items"] = decoded_bounds(kind.item_type)
    return {name: value for name, value in found.items() if value}


def described_bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """What limits the values of a model's field."""
    for option in schema.get("anyOf", ()):
        if option != {"type": "null"}:
            return described_bounds(option)
    found = {
        name: schema[each] for name, names in BOUNDS.items() for each in names if each in schema
    }
    if "items" in schema:
        found["items"] = described_bounds(schema["items"])
    return {name: value for name, value in found.items() if value}


def fields_of(struct: Any) -> dict[str, inspect.Field]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    assert info.forbid_unknown_fields
    return {field.name: field for field in info.fields}


@pytest.mark.parametrize(("struct", "model"), PAIRS, ids=lambda kind: kind.__name__)
def test_a_body_is_described_as_it_is_decoded(struct: Any, model: type[BaseModel]):
    fields, schema = fields_of(struct), model.model_json_schema()
    assert set(fields) == set(schema["properties"])
    required = {name for name, field in fields.items() if field.required}
    assert required == set(schema.get("required", ()))
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(("struct", "model"), PAIRS, ids=lambda kind: kind.__name__)
def test_the_bounds_and_defaults_are_the_same(struct: Any, model: type[BaseModel]):
    fields, described = fields_of(struct), model.model_json_schema()["properties"]
    for name in fields.keys() - CHECKED_LATER:
        assert decoded_bounds(fields[name].type) == described_bounds(described[name]), name
        if fields[name].default is not NODEFAULT:
            assert fields[name].default == described[name]["default"], name


def test_every_described_body_has_a_decoder():
    described = {model for _, model in PAIRS}
    for model in vars(requests).values():
        if isinstance(model, type) and issubclass(model, requests.Request):
            assert model in described | {requests.Request, requests.HistoryQuery}, model
