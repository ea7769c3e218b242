"""The client tries again, waits as asked, gives up soon at a wrong address, and says why."""

import asyncio
import gzip
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec import convert

from daband_client import (
    AnswerError,
    AsyncClient,
    Client,
    DabandError,
    ProblemError,
    Retries,
    UnreachableError,
)
from daband_client.answers import Declared
from scripted import Script, problem

REWARDED = {"decision_id": "d", "status": "created", "offset": 1}
DECLARED: dict[str, Any] = {
    "name": "doses",
    "arms": ["low"],
    "context": {"kind": "shared", "shape": [2]},
    "method": "daband-plus",
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


def rewarded() -> httpx.Response:
    return httpx.Response(200, json=REWARDED)


def reward(script: Script, waits: list[float], attempts: int = 5) -> Any:
    with Client(transport=script, retries=Retries(attempts), sleep=waits.append) as client:
        return client.reward("d", 1)


def reward_async(script: Script, waits: list[float], attempts: int = 5) -> Any:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def outcome() -> Any:
        async with AsyncClient(transport=script, retries=Retries(attempts), sleep=sleep) as client:
            return await client.reward("d", 1)

    return asyncio.run(outcome())


@pytest.mark.parametrize("send", [reward, reward_async])
def test_what_passes_is_tried_again(send: Any) -> None:
    script, waits = (
        Script(
            httpx.ConnectError("refused"),
            problem(503, "overloaded", **{"Retry-After": "3"}),
            httpx.ReadTimeout("late"),
            rewarded(),
        ),
        list[float](),
    )
    assert send(script, waits).offset == 1
    assert len({request.content for request in script.requests}) == 1
    assert len(waits) == 3
    assert 0.05 <= waits[0] <= 0.1
    assert waits[1] == 3
    assert 0.2 <= waits[2] <= 0.4


def test_attempts_are_bounded() -> None:
    waits: list[float] = []
    with pytest.raises(UnreachableError, match=r"late.*3 attempts"):
        reward(Script(*(httpx.ReadTimeout("late") for _ in range(3))), waits, attempts=3)
    with pytest.raises(ProblemError) as refused:
        reward(Script(*(problem(503, "overloaded") for _ in range(3))), waits, attempts=3)
    assert (refused.value.status, refused.value.slug, len(waits)) == (503, "overloaded", 4)


@pytest.mark.parametrize("send", [reward, reward_async])
def test_an_address_that_never_answered_is_given_up_after_one_retry(send: Any) -> None:
    waits: list[float] = []
    script = Script(*(httpx.ConnectError("[Errno 111] Connection refused") for _ in range(8)))
    with pytest.raises(UnreachableError) as failed:
        send(script, waits, attempts=8)
    assert (len(script.requests), len(waits)) == (2, 1)
    assert str(failed.value) == (
        "no answer from http://127.0.0.1:8000: [Errno 111] Connection refused (2 attempts)"
    )
    assert isinstance(failed.value, ConnectionError)
    assert isinstance(failed.value, DabandError)
    assert isinstance(failed.value.__cause__, httpx.ConnectError)


def test_a_service_that_answered_before_is_waited_for() -> None:
    script = Script(rewarded(), *(httpx.ConnectError("refused") for _ in range(6)), rewarded())
    with Client(transport=script, sleep=lambda _: None) as client:
        client.reward("d", 1)
        assert client.reward("d", 1).offset == 1


def test_a_changed_address_is_a_new_one() -> None:
    script = Script(rewarded(), *(httpx.ConnectError("refused") for _ in range(8)))
    with Client("http://one/base", transport=script, sleep=lambda _: None) as client:
        client.reward("d", 1)
        client.url = "http://two"
        with pytest.raises(UnreachableError, match="http://two: refused"):
            client.reward("d", 1)
    assert [str(each.url) for each in script.requests] == [
        "http://one/base/reward",
        "http://two/reward",
        "http://two/reward",
    ]


def test_what_cannot_be_sent_is_not_tried_again() -> None:
    script = Script(httpx.LocalProtocolError("bad header"))
    with pytest.raises(UnreachableError, match=r"bad header \(1 attempt\)"):
        reward(script, [])


def test_an_error_without_words_is_named() -> None:
    with pytest.raises(UnreachableError, match="ReadTimeout"):
        reward(Script(httpx.ReadTimeout("")), [], attempts=1)


@pytest.mark.parametrize("status", [400, 403, 404, 409, 422, 500])
def test_what_does_not_pass_is_not_tried_again(status: int) -> None:
    waits: list[float] = []
    with pytest.raises(ProblemError, match="reward-conflict"):
        reward(Script(problem(status, "reward-conflict")), waits)
    assert waits == []


def test_a_long_retry_after_is_not_waited_for() -> None:
    waits: list[float] = []
    with pytest.raises(ProblemError, match="429 rate-limited"):
        reward(Script(problem(429, "rate-limited", **{"Retry-After": "3600"})), waits)
    assert waits == []


def test_a_date_in_retry_after_is_not_a_wait() -> None:
    waits: list[float] = []
    late = problem(503, "overloaded", **{"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"})
    assert reward(Script(late, rewarded()), waits).offset == 1
    assert waits[0] <= 0.1


def test_a_problem_says_everything_it_knows() -> None:
    body = {
        "type": "/problems/invalid-request",
        "title": "Invalid request",
        "status": 422,
        "detail": "The request is wrong.",
        "errors": [
            {"pointer": "#/source/context/3", "detail": "Expected `float`, got `str`."},
            {"pointer": "#/seed", "detail": "Too small."},
        ],
    }
    with pytest.raises(ProblemError) as refused:
        reward(Script(httpx.Response(422, json=body)), [])
    assert str(refused.value) == (
        "422 invalid-request: The request is wrong.\n"
        "  #/source/context/3 Expected `float`, got `str`.\n"
        "  #/seed Too small."
    )
    assert refused.value.errors[1]["pointer"] == "#/seed"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (httpx.Response(500, text="oops"), "500: Internal Server Error"),
        (httpx.Response(500, json=["oops"]), "500: Internal Server Error"),
        (httpx.Response(404, json={"type": "about:blank", "title": "Not Found"}), "404: Not Found"),
        (
            httpx.Response(308, headers={"Location": "https://there"}),
            "308: Permanent Redirect; the address has moved to https://there",
        ),
    ],
)
def test_an_answer_that_is_no_problem_is_an_error_all_the_same(
    answer: httpx.Response, said: str
) -> None:
    with pytest.raises(ProblemError) as refused:
        reward(Script(answer), [])
    assert str(refused.value) == said


@pytest.mark.parametrize("text", ["<html>", '{"offset": "one"}'])
def test_an_answer_of_another_service_is_an_error(text: str) -> None:
    with pytest.raises(
        AnswerError, match=r"http://127.0.0.1:8000/reward answered POST .* Rewarded"
    ):
        reward(Script(httpx.Response(200, text=text)), [])


def test_waits_double_up_to_a_bound() -> None:
    waits = list(Retries(attempts=10, first_seconds=1, max_seconds=4).waits())
    assert len(waits) == 9
    assert all(2 <= wait <= 4 for wait in waits[2:])


def created(*steps: httpx.Response) -> Any:
    with Client(transport=Script(*steps), retries=Retries(1)) as client:
        return client.create_experiment("doses", ["low"], {"kind": "shared", "shape": [2]})


def test_a_file_is_read_while_it_is_sent_and_again_at_the_next_attempt(tmp_path: Path) -> None:
    plain, packed = tmp_path / "mice.csv", tmp_path / "mice.csv.gz"
    plain.write_bytes(b"dose,gain\n" + b"low,1\n" * 400_000)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    received: list[list[int]] = []

    class Refusing(httpx.BaseTransport, httpx.AsyncBaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            received.append([len(each) for each in request.stream])  # type: ignore[union-attr]
            return problem(503 if len(received) % 2 else 422, "no")

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            received.append([len(each) async for each in request.stream])  # type: ignore[union-attr]
            return problem(503 if len(received) % 2 else 422, "no")

    async def send_async() -> None:
        async with AsyncClient(
            "http://test", transport=Refusing(), retries=Retries(first_seconds=0.0)
        ) as client:
            await client.import_history("mice", packed, arm="dose", reward="gain")

    with Client("http://test", transport=Refusing(), retries=Retries(first_seconds=0.0)) as client:
        with pytest.raises(ProblemError):
            client.import_history("mice", plain, arm="dose", reward="gain")
        with pytest.raises(FileNotFoundError):
            client.import_history("mice", tmp_path / "no.csv", arm="dose", reward="gain")
    with pytest.raises(ProblemError):
        asyncio.run(send_async())
    assert [sum(each) for each in received] == [plain.stat().st_size] * 4
    assert all(len(each) > 1 and max(each) <= 1 << 20 for each in received)


def test_an_experiment_that_is_there_as_wanted_is_no_error() -> None:
    found = created(problem(409, "experiment-exists"), httpx.Response(200, json=EXPERIMENT))
    assert (found.experiment_id, found.config) == ("e", {"alpha": 0.5})


@pytest.mark.parametrize(
    ("column", "is_there"),
    [
        ({"name": "site", "type": "categorical", "values": [1, "2"]}, True),
        ({"name": "site", "unit": None}, True),
        ({"name": "site", "missing": False}, False),
        ({"name": "site", "values": ["1"]}, False),
    ],
)
def test_a_table_is_there_as_wanted_if_all_that_was_declared_is(
    column: dict[str, Any], is_there: bool
) -> None:
    shown = {"name": "site", "type": "categorical", "values": ["1", "2"], "missing": True}
    context = {"kind": "table", "shape": [4], "columns": [shown], "per_arm": False}
    found = convert({**DECLARED, "context": context}, Declared)
    wanted = {"kind": "table", "columns": [column], "sample": [{"site": "1"}]}
    assert found.is_as({**DECLARED, "context": wanted}) is is_there


def test_an_experiment_that_is_there_otherwise_is_an_error() -> None:
    other = httpx.Response(200, json={**EXPERIMENT, "declared": {**DECLARED, "seed": 1}})
    with pytest.raises(ProblemError, match="experiment-exists"):
        created(problem(409, "experiment-exists"), other)
    with pytest.raises(ProblemError, match="too-many-experiments"):
        created(problem(409, "too-many-experiments"))


@pytest.mark.parametrize(
    ("given", "variable", "sent"),
    [
        ("daband_1_2", None, "Bearer daband_1_2"),
        (None, "daband_3_4", "Bearer daband_3_4"),
        ("daband_1_2", "daband_3_4", "Bearer daband_1_2"),
        ("", "daband_3_4", None),
        (None, None, None),
    ],
)
def test_a_key_goes_with_every_request(
    given: str | None, variable: str | None, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable is not None:
        monkeypatch.setenv("DABAND_API_KEY", variable)
    script = Script(rewarded())
    with Client(transport=script, api_key=given, headers={"X-Lab": "7"}) as client:
        client.reward("d", 1)
    (request,) = script.requests
    assert request.headers["X-Lab"] == "7"
    assert request.headers.get("Authorization") == sent
    assert request.headers["User-Agent"].startswith("daband-client/")


def test_the_address_is_given_or_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Client().url == "http://127.0.0.1:8000"
    monkeypatch.setenv("DABAND_URL", "https://daband.example/api/")
    assert Client().url == "https://daband.example/api"
    assert Client("http://other").url == "http://other"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://", "http://h:port"])
def test_what_is_no_address_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="is no address of a service"):
        Client(url)


def test_names_cannot_leave_their_place_in_the_path() -> None:
    script = Script(httpx.Response(200, json=EXPERIMENT))
    with Client(transport=script) as client:
        client.experiment("a/../b?c")
    assert script.requests[0].url.raw_path == b"/experiments/a%2F..%2Fb%3Fc"
