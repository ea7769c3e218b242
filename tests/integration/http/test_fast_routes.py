"""A fast route answers the same whether it is called by its path or found by FastAPI's router."""

import asyncio
import json
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import APIRouter, Depends
from hypothesis import HealthCheck, given, settings, strategies as st

from service.http.fast_path import FastRoute
from service.routes import decisions, target
from tests.support.api import CONTEXT, Api

ROUTES = [*decisions.router.routes, *target.fast_router.routes]
BYTES = {"Content-Type": "application/octet-stream"}
ROUND: dict[str, Any] = {"experiment": "doses", "source": {"context": CONTEXT}}
BODY = np.array(CONTEXT, dtype=np.float32).tobytes()


def slow_way(api: Api) -> httpx.AsyncClient:
    """Past the fast routes: a prefix that the proxy in front has not cut off."""

    async def prefixed(scope: Any, receive: Any, send: Any) -> None:
        inside = {**scope, "path": f"/v1{scope['path']}", "root_path": "/v1"}
        await api.app({**inside, "state": {"services": api.services}}, receive, send)

    return httpx.AsyncClient(transport=httpx.ASGITransport(prefixed), base_url="http://test")


def same(one: httpx.Response, other: httpx.Response) -> bool:
    hidden = ("x-request-id", "content-length")
    heads = [
        {name: value for name, value in each.headers.items() if name not in hidden}
        for each in (one, other)
    ]
    bodies = [
        {
            name: value
            for name, value in each.json().items()
            if name not in ("request_id", "instance")
        }
        for each in (one, other)
    ]
    return one.status_code == other.status_code and heads[0] == heads[1] and bodies[0] == bodies[1]


def test_all_of_them_are_fast_routes():
    assert {route.path for route in ROUTES if isinstance(route, FastRoute)} == {
        "/select",
        "/select/batch",
        "/reward",
        "/reward/batch",
        "/target/select",
    }


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/select", {**ROUND, "request_id": "r-1"}),
        ("/select", {**ROUND, "request_id": "r-1", "source": {"context": [True, 1, 1, 1]}}),
        ("/select", {**ROUND, "request_id": "r-1", "source": {"context": ["1", 1, 1, 1]}}),
        ("/select/batch", {"experiment": "doses", "rounds": [{**ROUND, "experiment": 1}]}),
        ("/reward", {"decision_id": "none", "reward": 1.0}),
        ("/reward", {"decision_id": "none", "reward": True}),
        ("/reward/batch", {"rewards": []}),
        ("/target/select", {"experiment": "doses", "contexts": [CONTEXT, CONTEXT]}),
        ("/target/select", {"experiment": "nobody", "contexts": [CONTEXT]}),
    ],
)
async def test_both_ways_answer_alike(api: Api, path: str, body: dict[str, Any]):
    async with slow_way(api) as slow:
        first = await api.http.post(path, json=body)  # the second is a replay where it is stored
        again, other = await api.http.post(path, json=body), await slow.post(path, json=body)
    assert same(again, other), (again.text, other.text)
    assert first.status_code == other.status_code


@pytest.mark.parametrize(
    "query",
    [
        "experiment=doses&request_id=r-1",
        "experiment=doses&request_id=r-1&domain=target",
        "experiment=doses&request_id=r-1&domain=elsewhere",
        "experiment=doses&request_id=r-1&eligible_arms=low&eligible_arms=mid",
        "experiment=doses&request_id=r-1&eligible_arms=",
        "experiment=doses&request_id=r-1&unknown=1",
        "experiment=nobody&experiment=doses&request_id=r-1",
        "request_id=r-1",
        "experiment=&request_id=r-1",
        "experiment=doses&request_id=%C3%A9",
        "experiment=doses&request_id=%00",
    ],
)
async def test_both_ways_read_a_query_alike(api: Api, query: str):
    async with slow_way(api) as slow:
        await api.http.post(f"/select?{query}", content=BODY, headers=BYTES)
        again = await api.http.post(f"/select?{query}", content=BODY, headers=BYTES)
        other = await slow.post(f"/select?{query}", content=BODY, headers=BYTES)
    assert same(again, other), (again.text, other.text)


async def test_of_a_parameter_that_is_given_twice_the_last_counts(api: Api):
    query = "experiment=nobody&experiment=doses"
    answer = await api.http.post(f"/select?{query}", content=BODY, headers=BYTES)
    assert answer.json()["experiment"] == "doses"


async def test_other_methods_are_refused(api: Api):
    for route in ROUTES:
        assert isinstance(route, FastRoute)
        answer = await api.http.get(route.path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


NUMBERS = st.one_of(
    st.floats(),
    st.integers(-(10**60), 10**60),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
    st.sampled_from([1e39, -1e39, 3.4e38, 1e-45, "1", "NaN", "Infinity"]),
)
VALUES = st.recursive(NUMBERS, lambda inner: st.lists(inner, max_size=5), max_leaves=8)


@given(context=VALUES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
async def test_only_finite_numbers_of_the_right_shape_are_taken(api: Api, context: Any):
    content = json.dumps({**ROUND, "source": {"context": context}})
    answer = await api.http.post("/select", content=content)
    is_shaped = isinstance(context, list) and len(context) == 4
    is_good = is_shaped and all(type(x) in (int, float) and abs(x) <= 3.4028235e38 for x in context)
    assert answer.status_code == (200 if is_good else 422), (content, answer.text)


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 422),
        (BODY[:-1], 422),
        (BODY + b"\0", 422),
        (BODY + BODY, 422),
        (np.array([np.nan, 0, 0, 0], dtype=np.float32).tobytes(), 422),
        (np.array([np.inf, 0, 0, 0], dtype=np.float32).tobytes(), 422),
        (np.array([-3.4e38, 0, 0, 0], dtype=np.float32).tobytes(), 200),
    ],
)
async def test_binary_bodies_are_checked(api: Api, content: bytes, status: int):
    answer = await api.http.post("/select?experiment=doses", content=content, headers=BYTES)
    assert answer.status_code == status, answer.text


async def test_a_bad_body_is_refused_alone_among_those_of_its_tick(api: Api):
    bad = np.array([np.nan, 0, 0, 0], dtype=np.float32).tobytes()
    bodies = [BODY, BODY, bad, BODY, BODY]
    asked = (
        api.http.post("/select?experiment=doses", content=each, headers=BYTES) for each in bodies
    )
    answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200, 200, 422, 200, 200]
    (error,) = answers[2].json()["errors"]
    assert error == {
        "detail": "Expected finite float32 numbers of shape [4].",
        "pointer": "#",
    }


@pytest.mark.parametrize(
    "content",
    [
        '{"experiment": "doses", "source": {"context": ' + "[" * 5000 + "]" * 5000 + "}}",
        '{"experiment": "doses", "source": {"context": [1, 2, 3, 4]}, "source": 1}',
        '{"experiment": "doses", "source": {"context": [NaN, 2, 3, 4]}}',
        '{"experiment": "doses", "source": {"context": [1e999, 2, 3, 4]}}',
    ],
)
async def test_strange_json_is_refused(api: Api, content: str):
    assert (await api.http.post("/select", content=content)).status_code == 422


def test_a_fast_route_with_dependencies_is_refused():
    router = APIRouter(route_class=FastRoute, dependencies=[Depends(lambda: None)])
    with pytest.raises(ValueError, match="no dependency would be solved"):
        router.post("/fast")(decisions.reward)
