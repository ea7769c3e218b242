"""What is sent, and what is remembered of the answers."""

import json
from uuid import UUID

import httptools
import numpy as np
import pytest

from loadtest.http_client import Answer
from loadtest.traffic import REWARD, SELECT, Body, Caller, Request, Traffic, Workload
from service.codec.bodies import RewardBody, SelectBody, decode

IDS = [str(UUID(int=number)) for number in range(1, 200)]


class Read:
    """A request as a server reads it."""

    def __init__(self, request: Request) -> None:
        self.url = self.body = b""
        self.headers: dict[bytes, bytes] = {}
        self.is_complete = False
        httptools.HttpRequestParser(self).feed_data(request.content)

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.is_complete = True


def traffic_of(**choices: object) -> Traffic:
    return Traffic(Workload(**choices), Caller("http://127.0.0.1:80"), "run", seed=1)  # type: ignore[arg-type]


def selected(decision_id: str, arm: str = "arm-2", target: str | None = None) -> Answer:
    body = {"source": {"decision_id": decision_id, "arm": arm, "probability": 1.0}}
    if target is not None:
        body["target"] = {"decision_id": target, "arm": arm}
    return Answer("200", json.dumps(body).encode())


def test_a_select_is_one_that_the_service_understands():
    read = Read(traffic_of(has_target=True, size=5).next())
    asked = decode(read.body, SelectBody)
    assert read.is_complete
    assert (read.url, asked.experiment, asked.request_id) == (b"/select", "load", "run-1")
    assert asked.source is not None
    assert asked.target is not None
    assert len(json.loads(bytes(asked.target.context))) == 5


def test_a_binary_select_carries_its_ids_in_the_url():
    read = Read(traffic_of(body=Body.BINARY, size=5).next())
    assert read.url == b"/select?experiment=load&request_id=run-1"
    assert read.headers[b"content-type"] == b"application/octet-stream"
    assert np.frombuffer(read.body, np.float32).shape == (5,)


def test_a_key_goes_with_every_request():
    caller = Caller("http://127.0.0.1:80", {"Authorization": "Bearer k"})
    read = Read(Traffic(Workload(), caller, "run", seed=1).next())
    assert read.headers[b"authorization"] == b"Bearer k"
    assert read.headers[b"host"] == b"127.0.0.1:80"


def test_ten_selects_are_followed_by_one_reward():
    traffic = traffic_of(selects_a_reward=10)
    kinds = []
    for number in range(44):
        request = traffic.next()
        kinds.append(request.kind)
        traffic.understand(request, selected(IDS[number]))
    assert kinds == ([SELECT] * 10 + [REWARD]) * 4


@pytest.mark.parametrize(("arm", "reward"), [("arm-2", 1.0), ("arm-3", 0.0)])
def test_a_reward_is_for_a_decision_that_was_answered(arm: str, reward: float):
    traffic = traffic_of(selects_a_reward=1)
    traffic.understand(traffic.next(), selected(IDS[0], arm))
    request = traffic.next()
    result = decode(Read(request).body, RewardBody)
    assert (result.decision_id, result.reward, request.decision_id) == (IDS[0], reward, IDS[0])


def test_without_a_decision_to_reward_a_select_is_sent_instead():
    traffic = traffic_of(selects_a_reward=1)
    assert [traffic.next().kind for _ in range(4)] == [SELECT] * 4


def test_what_was_acknowledged_is_remembered_and_nothing_else():
    traffic = traffic_of(selects_a_reward=1, has_target=True)
    traffic.understand(traffic.next(), selected(IDS[0], target=IDS[1]))
    reward = traffic.next()
    traffic.understand(reward, Answer("503"))
    traffic.understand(reward, Answer("201"))
    traffic.understand(traffic.next(), Answer("timeout"))
    assert bytes(traffic.acknowledged[SELECT]) == UUID(IDS[0]).bytes + UUID(IDS[1]).bytes
    assert bytes(traffic.acknowledged[REWARD]) == UUID(IDS[0]).bytes


def test_generators_send_different_contexts_and_ids():
    first, second = (
        Traffic(Workload(), Caller("http://127.0.0.1:80"), f"run-{index}", seed=index)
        .next()
        .content
        for index in range(2)
    )
    assert first.partition(b"\r\n\r\n")[2] != second.partition(b"\r\n\r\n")[2]
