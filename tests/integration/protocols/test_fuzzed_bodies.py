"""Odd bodies to each protocol: none is a 500, all answers are in the protocol's shape, nothing is written."""

import json
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.integration.protocols.conftest import Guarded
from tests.support.api import CONTEXT
from tests.support.keys import bearer
from tests.support.tables import MOUSE

MODELS = ("doses", "offers", "mice", "cells", "switch", "open")
DATATYPES = ("FP32", "FP64", "FP16", "BF16", "BOOL", "BYTES", "INT64", "UINT64", "INT8", "STRING")
DEEP: Any = 0
for _ in range(600):
    DEEP = [DEEP]
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e308, 2**31, 2**63, 2**64, -(2**63), 10**40),
    *("", "x", "\0", "\ud800", "é" * 300, "=cmd|' /C calc'!A0", "../../etc/passwd", "%00"),
    *([], [[]], {}, {"": 0}, [None], [0, "x"], ["\ud800"], [1e308] * 4, [[1.0] * 4] * 3, DEEP),
)
SHAPES: tuple[Any, ...] = (
    *([1, 4], [4], [0, 4], [0], [], [1, 0], [-1, 4], [1, -4], [2**31, 2**31], [2**63], [2**64]),
    *([1, 4, 1, 1, 1, 1, 1, 1, 1], [1] * 100, [1.0, 4.0], ["1", "4"], [[1], [4]], [1, 3, 6, 8]),
)


class Odd:
    """Odd values, the same in every run."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def value(self) -> Any:
        return self.one_of(*ODD)

    def one_of(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def often(self, usual: Any, share: float = 0.9) -> Any:
        return usual if self._random.random() < share else self.value()

    def fields(self, **usual: Any) -> dict[str, Any]:
        """The fields, some of them odd, missing or too many."""
        found = {name: self.often(each) for name, each in usual.items()}
        if self._random.random() < 0.1:
            found.pop(self.one_of(*found), None)
        if self._random.random() < 0.1:
            found[str(self.often("more"))] = self.value()
        return found

    def content(self, body: Any) -> bytes:
        """JSON, some of it with bytes changed, cut off, or not UTF-8."""
        text = bytearray(json.dumps(body).encode())
        change = self._random.random()
        if change < 0.1:
            text[self._random.randrange(len(text))] = self._random.randrange(256)
        elif change < 0.15:
            del text[self._random.randrange(len(text)) :]
        elif change < 0.2:
            text = text.replace(b'"context"', b'"context\xff"')
        return bytes(text)


def tensor(odd: Odd) -> dict[str, Any]:
    if odd.one_of(True, False):
        return {"name": "context", "datatype": "FP32", "shape": [1, 4], "data": CONTEXT}
    shape = odd.often(odd.one_of(*SHAPES))
    made = odd.fields(
        name=odd.one_of("context", "weight", "sex", "image"),
        datatype=odd.one_of(*DATATYPES),
        shape=shape,
        data=odd.one_of(CONTEXT, [CONTEXT], [0, 1], ["x"], [True], [1e39] * 4),
    )
    if odd.one_of(True, False, False):
        size = odd.one_of(0, 1, 16, 2**63, -1)
        made["parameters"] = odd.often({"binary_data_size": size})
        made.pop("data", None)
    return made


def inference(odd: Odd) -> tuple[bytes, dict[str, str]]:
    """A body of `infer`, some with binary tensors behind it."""
    body = odd.fields(
        inputs=[tensor(odd) for _ in range(odd.one_of(1, 1, 1, 2))],
        parameters=odd.fields(confidence_floor=0.5, priority=1, binary_data_output=True),
        outputs=[odd.fields(name=odd.one_of("arm", "mean"), parameters={"binary_data": True})],
        id="r-1",
    )
    content = odd.content(body)
    headers = {}
    if odd.one_of(True, False):
        length = odd.one_of(len(content), 0, -1, len(content) - 1, 10**30, "1e3", "²", "+7", "7")
        headers["Inference-Header-Content-Length"] = str(length)
        content += odd.one_of(b"", b"\0" * 16, b"\xff" * 16, b"\0\0\0\1x", b"\xff\xff\xff\x7f")
    return content, headers


def flag_context(odd: Odd) -> tuple[bytes, dict[str, str]]:
    """A body of an evaluation, with or without an `If-None-Match`."""
    context = odd.fields(
        targetingKey=odd.one_of("ada", "b" * 10_000, "\0", "\u202e"),
        context=odd.one_of(CONTEXT, dict.fromkeys("abcd", 1), "text", [CONTEXT] * 3),
        contexts=odd.one_of({"low": CONTEXT}, {"low": CONTEXT, "mid": CONTEXT}, {"": CONTEXT}),
        **MOUSE,
    )
    body = odd.fields(context=context)
    known = odd.one_of("*", '""', 'W/""', ",", ",,,", '"a","b"', "\xff", "x" * 5000, '"')
    return odd.content(body), {"If-None-Match": known} if odd.one_of(True, False) else {}


def send(
    guarded: Guarded, path: str, made: tuple[bytes, dict[str, str]], key: str
) -> httpx.Response:
    content, extra = made
    headers: dict[str, str] = {**bearer(key), "Content-Type": "application/json", **extra}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    return guarded.http.post(guarded.url + path, content=content, headers=raw)


def offsets(guarded: Guarded) -> dict[str, int]:
    with guarded.client() as client:
        return {each.name: client.state(each.name).head_offset for each in client.experiments()}


def flag(odd: Odd) -> str:
    return f"/ofrep/v1/evaluate/flags/{odd.one_of(*MODELS)}"


PATHS: dict[str, tuple[Callable[[Odd], str], Callable[[Odd], Any]]] = {
    "infer": (lambda odd: f"/v2/models/{odd.one_of(*MODELS)}/infer", inference),
    "flag": (flag, flag_context),
    "target flag": (lambda odd: f"{flag(odd)}@target", flag_context),
    "all flags": (lambda odd: "/ofrep/v1/evaluate/flags", flag_context),
}


@pytest.mark.parametrize("bodies", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", PATHS)
def test_odd_bodies_are_refused_in_the_protocols_shape(guarded: Guarded, kind: str, bodies: int):
    path_of, body_of = PATHS[kind]
    odd, before = Odd(bodies), offsets(guarded)
    statuses, decisions = Counter[int](), set[str]()
    for _ in range(bodies):
        path, made = path_of(odd), body_of(odd)
        answer = send(guarded, path, made, guarded.owner)
        statuses[answer.status_code] += 1
        assert answer.status_code in (200, 304, 400, 413, 422), (path, made, answer.text)
        if answer.status_code >= 400:
            assert answer.json().keys() & {"error", "errorCode"}, (made, answer.text)
        elif kind == "flag":
            decisions.add(answer.json()["metadata"]["decision_id"])
    written = sum(offsets(guarded).values()) - sum(before.values())
    assert written == len(decisions)
    refused = sum(count for status, count in statuses.items() if status >= 400)
    assert min(statuses[200], refused) > 0, statuses
