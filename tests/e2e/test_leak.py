"""A refused target reward leaves no trace: not in the state, on disk, in logs or in metrics."""

import struct
from pathlib import Path
from typing import Any

import httpx

from tests.support.processes.daband import serving
from tests.support.waiting import PATIENCE_SECONDS, wait_until

CANARY = 0.8414709848078965
CONTROL = 0.9092974268256817
ARMS = ["low", "mid", "high"]
EPISODE = 16
DECLARED = {
    "name": "doses",
    "arms": ARMS,
    "context": {"kind": "shared", "shape": [4]},
    "seed": 7,
    "config": {
        "episode_length": EPISODE,
        "latent_size": 4,
        "hidden_sizes": [8],
        "steps_per_episode": 4,
        "batch_size": 8,
    },
}


def play(http: httpx.Client, rounds: range, leaks: bool) -> None:
    """Rounds that are the same in every run: each has one eligible arm, so nothing is drawn."""
    for i in rounds:
        context = [0.1 * (i % 7), 0.2, -0.1 * (i % 3), 1.0]
        body = {
            "experiment": "doses",
            "request_id": f"r-{i}",
            "source": {"context": context},
            "target": {"context": [value + 0.3 for value in context]},
            "eligible_arms": [ARMS[i % 3]],
        }
        answer = http.post("/select", json=body).json()
        if leaks:
            sent = {"decision_id": answer["target"]["decision_id"], "reward": CANARY}
            assert http.post("/reward", json=sent).status_code == 403
            assert http.post("/reward/batch", json={"rewards": [sent]}).status_code == 200
        value = CONTROL if i % 3 else 0.0
        sent = {"decision_id": answer["source"]["decision_id"], "reward": value}
        assert http.post("/reward", json=sent).status_code == 201


def idle_state(http: httpx.Client, rewards: int) -> dict[str, Any]:
    def state() -> dict[str, Any]:
        found: dict[str, Any] = http.get("/experiments/doses/state").json()
        return found

    def is_idle() -> bool:
        found = state()
        is_folded = found["counts"]["folded_rewards"] == rewards and found["lag"] == 0
        return is_folded and not found["is_training"]

    wait_until(is_idle)
    return state()


def run(folder: Path, leaks: bool) -> tuple[list[str], str]:
    """State hashes after each part of a run, and the metrics in the end."""
    folder.mkdir()
    with (
        serving(folder, LOG_LEVEL="debug") as service,
        httpx.Client(base_url=service.url, timeout=PATIENCE_SECONDS) as http,
    ):
        assert http.post("/experiments", json=DECLARED).status_code == 201
        hashes = []
        # An encoder's activation stands in the log where timing puts it: wait for it.
        for start, end in ((0, EPISODE), (EPISODE, 2 * EPISODE), (2 * EPISODE, 40)):
            play(http, range(start, end), leaks)
            hashes.append(idle_state(http, end)["state_hash"])
        return hashes, http.get("/metrics").text


def traces(folder: Path, value: float) -> list[str]:
    """The files under a folder in which a number is found, as text or in binary."""
    forms = [struct.pack(kind, value) for kind in ("<d", ">d")]
    forms += [struct.pack(kind, value) for kind in ("<f", ">f")]
    forms.append(str(value)[:10].encode())
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if any(form in path.read_bytes() for form in forms)]


def test_refused_target_rewards_are_found_nowhere(tmp_path: Path):
    hashes, metrics = run(tmp_path / "leaking", leaks=True)
    expected, _ = run(tmp_path / "silent", leaks=False)
    assert hashes == expected
    assert len(set(hashes)) == 3
    assert traces(tmp_path / "leaking", CONTROL)  # an accepted reward is found this way
    assert traces(tmp_path / "leaking", CANARY) == []
    assert "8414709" not in metrics
    assert 'daband_target_rewards_refused_total{experiment="doses"} 80.0' in metrics
