"""The client tries again, waits as asked, and says what was refused."""

from collections.abc import Callable
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from service.client import AsyncClient, Client, ProblemError, Retries, Round

REWARDED = {"decision_id": "d", "status": "created", "offset": 1}
DECLARED: dict[str, Any] = {
    "name": "doses",
    "arms": ["low"],
    "context": {"kind": "shared", "shape": [2]},
    "method": "daband",
    "seed": 0,
    "config": {},
}
EXPERIMENT = {
    **DECLARED,
    "experiment_id": "e",
    "config": {"alpha": 0.5},
    "recipe": 1,
    "declared": DECLARED,
    "phase": "zero_shot",
    "status": "active",
    "created_at": "2026-01-01T00:00:00Z",
}
Step = httpx.Response | httpx.TransportError


def problem(status: int, slug: str, **headers: str) -> httpx.Response:
    body = {"type": f"/problems/{slug}", "status": status, "detail": "No."}
    return httpx.Response(status, json=body, headers=headers)


class Script(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Answers with the given steps, one per request."""

    def __init__(self, *steps: Step) -> None:
        self._steps = list(steps)
        self.requests: list[httpx.Request] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        step = self._steps.pop(0)
        if isinstance(step, httpx.TransportError):
            raise step
        return step

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self.handle_request(request)


def reward(script: Script, waits: list[float], attempts: int = 5) -> Any:
    with Client(transport=script, retries=Retries(attempts), sleep=waits.append) as client:
        return client.reward("d", 1)


async def reward_async(script: Script, waits: list[float], attempts: int = 5) -> Any:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async with AsyncClient(transport=script, retries=Retries(attempts), sleep=sleep) as client:
        return await client.reward("d", 1)


def flaky() -> Script:
    return Script(
        httpx.ConnectError("refused"),
        problem(503, "overloaded", **{"Retry-After": "3"}),
        httpx.ReadTimeout("late"),
        httpx.Response(200, json=REWARDED),
    )


def check_flaky(script: Script, waits: list[float], answer: Any) -> None:
    assert answer.offset == 1
    assert len({request.content for request in script.requests}) == 1
    assert len(waits) == 3
    assert 0.05 <= waits[0] <= 0.1
    assert waits[1] == 3
    assert 0.2 <= waits[2] <= 0.4


def test_what_passes_is_tried_again():
    script, waits = flaky(), list[float]()
    check_flaky(script, waits, reward(script, waits))


async def test_what_passes_is_tried_again_from_asyncio():
    script, waits = flaky(), list[float]()
    check_flaky(script, waits, await reward_async(script, waits))


def test_attempts_are_bounded():
    waits: list[float] = []
    with pytest.raises(httpx.ConnectError):
        reward(Script(*(httpx.ConnectError("refused") for _ in range(3))), waits, attempts=3)
    with pytest.raises(ProblemError) as refused:
        reward(Script(*(problem(503, "overloaded") for _ in range(3))), waits, attempts=3)
    assert (refused.value.status, refused.value.slug, len(waits)) == (503, "overloaded", 4)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 500])
def test_what_does_not_pass_is_not_tried_again(status: int):
    script, waits = Script(problem(status, "reward-conflict")), list[float]()
    with pytest.raises(ProblemError, match="reward-conflict"):
        reward(script, waits)
    assert waits == []


def test_an_answer_that_is_no_problem_is_an_error_all_the_same():
    for answer in (httpx.Response(500, text="oops"), httpx.Response(500, json=["oops"])):
        with pytest.raises(ProblemError):
            reward(Script(answer), [])


def test_waits_double_up_to_a_bound():
    waits = list(Retries(attempts=10, first_seconds=1, max_seconds=4).waits())
    assert len(waits) == 9
    assert all(2 <= wait <= 4 for wait in waits[2:])


def created(client: Callable[..., Any], *steps: Step) -> Any:
    with Client(transport=Script(*steps), retries=Retries(1)) as made:
        return made.create_experiment(
            name="doses", arms=["low"], context={"kind": "shared", "shape": [2]}
        )


def test_an_experiment_that_is_there_as_wanted_is_no_error():
    found = created(Client, problem(409, "experiment-exists"), httpx.Response(200, json=EXPERIMENT))
    assert found.experiment_id == "e"


def test_an_experiment_that_is_there_otherwise_is_an_error():
    other = httpx.Response(200, json={**EXPERIMENT, "declared": {**DECLARED, "seed": 1}})
    with pytest.raises(ProblemError, match="experiment-exists"):
        created(Client, problem(409, "experiment-exists"), other)


def test_a_round_keeps_its_id_and_arrays_travel_as_float32():
    context = np.array([1.0, 2.0])
    body = Round(source=context, target={"low": [1, 2]}, eligible_arms=("low",)).body()
    assert len(body["request_id"]) == 36
    assert body["source"]["context"] == np.array([1, 2], dtype="<f4").tobytes()
    assert body["target"] == {"contexts": {"low": [1, 2]}}
    assert body["eligible_arms"] == ["low"]
    assert Round(source=context, request_id="mine").body()["request_id"] == "mine"
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(body)) == body


@pytest.mark.parametrize(
    ("given", "sent"), [({"api_key": "daband_1_2"}, "Bearer daband_1_2"), ({}, None)]
)
async def test_a_key_goes_with_every_request(given: dict[str, str], sent: str | None):
    script = Script(*(httpx.Response(200, json=REWARDED) for _ in range(2)))
    with Client(transport=script, **given) as client:  # type: ignore[arg-type]
        client.reward("d", 1)
    async with AsyncClient(transport=script, **given) as asynchronous:  # type: ignore[arg-type]
        await asynchronous.reward("d", 1)
    assert [each.headers.get("Authorization") for each in script.requests] == [sent, sent]
