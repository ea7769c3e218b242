"""Each limit that OpenAPI states of a configuration is the one that refuses."""

import math
from collections.abc import Iterator
from typing import Any

import pytest

from model.config import ContextKind
from service.codec.requests import ExperimentRequest
from service.errors import InvalidRequest
from service.experiment_spec import CONFIG_FIELDS, ExperimentSpec

FIELDS: dict[str, dict[str, Any]] = ExperimentRequest.model_json_schema()["properties"]["config"][
    "properties"
]
NUMBERS = {"integer", "number"}


def check(name: str, value: object) -> None:
    config = {name: value}
    ExperimentSpec("doses", ("low", "high"), ContextKind.SHARED, (3,), config=config).check()


def each_limit() -> Iterator[tuple[str, Any, Any]]:
    """Its field, a value at the limit, and the next one beyond."""
    for name, stated in FIELDS.items():
        if stated["type"] in NUMBERS:
            for at, beyond in pairs(stated):
                yield name, at, beyond
        elif stated["type"] == "array":
            for at, beyond in pairs(stated["items"]):
                yield name, [at], [beyond]
            yield name, [8] * stated["maxItems"], [8] * (stated["maxItems"] + 1)


def pairs(stated: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    low, high = stated["minimum"], stated["maximum"]
    if stated["type"] == "integer":
        yield low, low - 1
        yield high, high + 1
    else:
        yield low, math.nextafter(low, -math.inf)
        yield high, math.nextafter(high, math.inf)


LIMITS = list(each_limit())


def test_each_field_is_described_and_each_number_has_both_limits():
    assert FIELDS.keys() == CONFIG_FIELDS
    of_numbers = {name for name, stated in FIELDS.items() if stated["type"] in {*NUMBERS, "array"}}
    assert {name for name, _, _ in LIMITS} == of_numbers


@pytest.mark.parametrize(("name", "at", "beyond"), LIMITS)
def test_a_value_at_the_limit_is_taken_and_the_next_one_refused(name: str, at: Any, beyond: Any):
    check(name, at)
    with pytest.raises(InvalidRequest) as refused:
        check(name, beyond)
    (error,) = refused.value.members["errors"]
    assert error["pointer"] == f"#/config/{name}"
