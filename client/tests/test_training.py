"""The client waits until an experiment is trained, and says why it cannot be."""

from typing import Any

import httpx
import pytest

from daband_client import Client, NotTrainedError
from daband_client.answers import State
from scripted import Script

SETTLED: dict[str, Any] = {
    "experiment": "doses",
    "phase": "zero_shot",
    "status": "active",
    "counts": {},
    "policy_version": 3,
    "encoder_version": 1,
    "state_hash": None,
    "head_offset": 9,
    "folded_offset": 9,
    "lag": 0,
    "snapshot_at": None,
    "training": {"status": "idle"},
}
UPDATE = {"episode": 3, "rewards": 64, "target_contexts": 64}
UNSETTLED = (
    {"lag": 1},
    {"policy_version": 0},
    {"training": {"status": "running"}},
    {"training": {"status": "idle", "running": UPDATE}},
    {"training": {"status": "idle", "due_updates": 2}},
)


def wait(*changes: dict[str, Any], timeout_seconds: float = 60) -> tuple[State, list[State]]:
    script = Script(*(httpx.Response(200, json=SETTLED | each) for each in changes))
    looks: list[State] = []
    with Client(transport=script, sleep=lambda seconds: None) as client:
        return client.wait_until_trained("doses", timeout_seconds, looks.append), looks


def test_it_waits_while_anything_is_due() -> None:
    state, looks = wait(*UNSETTLED, {})
    assert state.is_settled
    assert len(looks) == len(UNSETTLED)


def test_each_look_tells_the_updates_that_are_done() -> None:
    running = {"status": "running", "running": UPDATE, "due_updates": 2}
    _, looks = wait({"training": running, "episode": 3}, {"lag": 1}, {})
    assert [each.updates for each in looks] == [(2, 5), (0, None)]


def test_learning_that_fails_is_an_error() -> None:
    with pytest.raises(NotTrainedError, match="learning failed: no memory"):
        wait({"training": {"status": "failing", "reason": "no memory"}})


def test_waiting_ends() -> None:
    with pytest.raises(NotTrainedError, match="doses was not trained within"):
        wait({"lag": 1}, {"lag": 1}, timeout_seconds=0.2)
