"""Batches of any size are split to what the service takes, under ids that repeat."""

from array import array
from typing import Any
from urllib.parse import parse_qs

import httpx
import msgspec
import pytest

from daband_client import Client, Limits, ProblemError, Round
from daband_client.ids import part_id


class Service(httpx.BaseTransport):
    """Answers batches as the service would, and keeps what it was sent."""

    def __init__(self, most: int = 1000) -> None:
        self.requests: list[httpx.Request] = []
        self.version = 0
        self._most = most

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.version += 1
        kind = request.url.path.removeprefix("/").replace("/", "_")
        if kind in ("select_batch", "target_select") and self._count(request) > self._most:
            problem = {"type": "/problems/batch-too-large", "detail": "Too large."}
            return httpx.Response(413, json={**problem, "largest_batch": self._most})
        return httpx.Response(200, json=getattr(self, f"_{kind}")(request))

    def _count(self, request: httpx.Request) -> int:
        body = msgspec.msgpack.decode(request.content)
        listed = body.get("rounds") or body["contexts"]
        return 0 if isinstance(listed, bytes) else len(listed)

    def bodies(self) -> list[Any]:
        return [msgspec.msgpack.decode(each.content) for each in self.requests]

    def _select_batch(self, request: httpx.Request) -> Any:
        body = msgspec.msgpack.decode(request.content)
        rounds = [
            {"experiment": "doses", "request_id": each["request_id"], "policy_version": 1}
            for each in body["rounds"]
        ]
        return {"experiment": body["experiment"], "rounds": rounds}

    def _reward_batch(self, request: httpx.Request) -> Any:
        sent = msgspec.msgpack.decode(request.content)["rewards"]
        return {"rewards": [{**each, "status": "created", "offset": 1} for each in sent]}

    def _target_select(self, request: httpx.Request) -> Any:
        body = msgspec.msgpack.decode(request.content)
        given = body["contexts"]
        count = len(given) // 8 if isinstance(given, bytes) else len(given)
        decision = {
            "arm": "low",
            "probabilities": {"low": 1.0},
            "mean": 0.5,
            "bonus": 0.1,
            "transfer_confidence": 0.0,
            "abstained": False,
        }
        stored = self._stored(body["request_id"], count) if body["store"] else None
        return {
            "experiment": "doses",
            "policy_version": self.version,
            "encoder_version": 0,
            "decisions": [decision] * count,
            "stored": stored,
        }

    def _target_contexts(self, request: httpx.Request) -> Any:
        is_raw = request.headers["Content-Type"] == "application/octet-stream"
        content = request.content
        count = len(content) // 8 if is_raw else content.count(b"\n")
        return self._stored(parse_qs(request.url.query.decode())["request_id"][0], count)

    def _stored(self, request_id: str, count: int) -> Any:
        return {
            "experiment": "doses",
            "request_id": request_id,
            "status": "already_recorded" if self.version == 1 else "created",
            "contexts": count,
            "offset": self.version,
        }

    def query(self, name: str) -> list[str]:
        return [parse_qs(each.url.query.decode())[name][0] for each in self.requests]


@pytest.fixture
def service() -> Service:
    return Service()


def client(service: Service, **limits: int) -> Client:
    return Client(transport=service, limits=Limits(**limits))


def matrix(rows: int) -> "memoryview[float]":
    return memoryview(array("f", range(2 * rows))).cast("B").cast("f", [rows, 2])


def test_ten_thousand_rounds_are_ten_requests(service: Service) -> None:
    rounds = [Round([0.0, float(index)]) for index in range(10_000)]
    found = client(service).select_many("doses", rounds, request_id="b")
    assert [each.request_id for each in found] == [f"b/{index}" for index in range(10_000)]
    assert [len(body["rounds"]) for body in service.bodies()] == [1000] * 10
    assert service.bodies()[3]["rounds"][7]["source"] == {"context": [0.0, 3007.0]}


def test_rounds_keep_their_own_ids(service: Service) -> None:
    found = client(service, rows=1).select_many("doses", [Round([0.0], request_id="mine"), Round()])
    assert found[0].request_id == "mine"
    assert found[1].request_id.endswith("/1")


def test_a_hundred_thousand_rewards_are_a_hundred_requests(service: Service) -> None:
    rewards = {f"d-{index}": 1.0 for index in range(100_000)}
    outcomes = client(service).reward_many(rewards)
    assert [each.decision_id for each in outcomes] == list(rewards)
    assert len(service.requests) == 100


def test_nothing_to_send_is_no_request(service: Service) -> None:
    assert client(service).select_many("doses", []) == []
    assert client(service).reward_many({}) == []
    with pytest.raises(ValueError, match="no contexts"):
        client(service).target_select("doses", [])
    with pytest.raises(ValueError, match="no contexts"):
        client(service).upload_contexts("doses", pytest.importorskip("numpy").zeros((0, 2)))
    assert service.requests == []


def test_fifty_thousand_contexts_are_fifty_requests(service: Service) -> None:
    found = client(service).target_select("doses", matrix(50_000), 0.5, store=True, request_id="t")
    assert len(found.decisions) == 50_000
    assert found.policy_version == 50
    assert found.stored is not None
    assert (found.stored.contexts, found.stored.request_id) == (50_000, "t")
    assert (found.stored.status, found.stored.offset) == ("created", 50)
    bodies = service.bodies()
    assert [body["request_id"] for body in bodies[:3]] == ["t", "t/1000", "t/2000"]
    assert {body["confidence_floor"] for body in bodies} == {0.5}
    assert b"".join(body["contexts"] for body in bodies) == matrix(50_000).tobytes()


def test_lists_of_contexts_are_split_too(service: Service) -> None:
    found = client(service, rows=2).target_select("doses", [[float(i), 0.0] for i in range(5)])
    assert len(found.decisions) == 5
    assert found.stored is None
    assert [body["contexts"] for body in service.bodies()] == [
        [[0.0, 0.0], [1.0, 0.0]],
        [[2.0, 0.0], [3.0, 0.0]],
        [[4.0, 0.0]],
    ]


def test_large_contexts_are_split_by_their_bytes(service: Service) -> None:
    client(service, body_bytes=24).target_select("doses", matrix(7))
    assert [len(body["contexts"]) for body in service.bodies()] == [24, 24, 8]
    service.requests.clear()
    client(service, body_bytes=45).target_select("doses", [[0.5, 0.5]] * 5)
    assert [len(body["contexts"]) for body in service.bodies()] == [2, 2, 1]
    service.requests.clear()
    client(service, body_bytes=1).select_many("doses", [Round([0.0])] * 3)
    assert [len(body["rounds"]) for body in service.bodies()] == [1, 1, 1]


def test_an_upload_is_split_and_joined(service: Service) -> None:
    stored = client(service, upload_rows=1000).upload_contexts("doses", matrix(2500), "u/1")
    assert (stored.contexts, stored.request_id, stored.offset) == (2500, "u/1", 3)
    assert stored.status == "created"
    assert service.query("request_id") == ["u/1", "u/1/1000", "u/1/2000"]
    assert service.query("experiment") == ["doses"] * 3
    assert b"".join(each.content for each in service.requests) == matrix(2500).tobytes()
    service.requests.clear()
    client(service, upload_bytes=800).upload_contexts("doses", matrix(250))
    assert [len(each.content) for each in service.requests] == [800, 800, 400]


def test_lists_are_uploaded_as_lines(service: Service) -> None:
    service.version = 1
    rows: list[Any] = [[0.5, 1], {"age": 41, "strain": "B6"}, array("f", [1, 2])]
    stored = client(service).upload_contexts("doses", rows)
    (request,) = service.requests
    assert (stored.contexts, request.headers["Content-Type"]) == (3, "application/x-ndjson")
    assert request.content == b'[0.5,1]\n{"age":41,"strain":"B6"}\n[1.0,2.0]\n'


def test_the_same_batch_is_the_same_requests(service: Service) -> None:
    for _ in range(2):
        client(service, rows=2).select_many("doses", [Round([0.0])] * 5, request_id="b")
        client(service, rows=2).target_select("doses", [[0.0]] * 5, request_id="t", store=True)
    contents = [each.content for each in service.requests]
    assert contents[:6] == contents[6:]


def test_scalars_of_numpy_are_numbers(service: Service) -> None:
    numpy = pytest.importorskip("numpy")
    client(service).target_select("doses", [[numpy.float32(0.5), numpy.int64(2)]])
    client(service).reward_many({"d": numpy.float32(1)})
    assert service.bodies()[0]["contexts"] == [[0.5, 2]]
    assert service.bodies()[1]["rewards"] == [{"decision_id": "d", "reward": 1.0}]


def test_what_cannot_be_sent_is_named(service: Service) -> None:
    with pytest.raises(TypeError, match="a object inside a context cannot be sent"):
        client(service).target_select("doses", [[object()]])


def test_ids_of_parts_fit() -> None:
    assert part_id("b", 1000) == "b/1000"
    long = part_id("ä" * 64, 1000)
    assert len(long.encode()) <= 128
    assert long == part_id("ä" * 64, 1000) != part_id("ö" * 64, 1000)


def test_a_batch_of_many_arms_is_sent_in_parts_as_large_as_the_service_states() -> None:
    service = Service(most=4)
    with Client(transport=service) as client:
        decided = client.select_many("doses", iter([Round([1.0])] * 10), "b")
        answered = client.target_select("doses", [{"x": 1.0}] * 10)
    assert [each.request_id for each in decided] == [part_id("b", at) for at in range(10)]
    assert len(answered.decisions) == 10
    sizes = [len(each.get("rounds") or each["contexts"]) for each in service.bodies()]
    assert sizes == [10, 4, 4, 2] * 2


def test_a_batch_of_which_not_one_round_passes_is_refused() -> None:
    with Client(transport=Service(most=0)) as client, pytest.raises(ProblemError) as refused:
        client.select_many("doses", [Round([1.0])])
    assert refused.value.slug == "batch-too-large"
