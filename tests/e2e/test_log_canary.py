"""No context, reward or secret is in any log line at any level, nor in a trace.

One run with all that happens to a service: good and bad requests of every kind, refusals, conflicts,
trainings, an evaluation, a bus that is away. Every number and secret in it would be found again.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.support.processes.collector import Collector, collecting
from tests.support.processes.daband import serving
from tests.support.waiting import PATIENCE_SECONDS, wait_until

CONTEXT = [0.7310585786300049, -0.6224593312018546, 0.5498339973124778, 0.9820137900379085]
REWARD, REFUSED = 0.8807970779778823, 0.9525741268224334
SECRET = "canary-5f4dcc3b5aa765d6"  # noqa: S105 - of nothing
NUMBERS = (*CONTEXT, REWARD, REFUSED)
EPISODE = 8
DECLARED = {
    "name": "doses",
    "arms": ["low", "mid", "high"],
    "context": {"kind": "shared", "shape": [4]},
    "config": {
        "episode_length": EPISODE,
        "latent_size": 4,
        "hidden_sizes": [8],
        "steps_per_episode": 2,
        "batch_size": 8,
    },
}
JSON = {"Content-Type": "application/json"}
BYTES = {"Content-Type": "application/octet-stream"}


def round_(index: int) -> dict[str, Any]:
    sides = {"source": {"context": CONTEXT}, "target": {"context": CONTEXT[::-1]}}
    return {"experiment": "doses", "request_id": f"r-{index}", **sides}


def play(http: httpx.Client, rounds: range) -> None:
    """Valid rounds, refused target rewards, and repeated and contradicting rewards."""
    for index in rounds:
        answer = http.post("/select", json=round_(index)).json()
        source, target = (answer[side]["decision_id"] for side in ("source", "target"))
        reported = {"decision_id": source, "reward": REWARD}
        statuses = [http.post("/reward", json=reported).status_code for _ in range(2)]
        assert statuses == [201, 200]
        assert http.post("/reward", json={**reported, "reward": REFUSED}).status_code == 409
        refused = {"decision_id": target, "reward": REFUSED}
        assert http.post("/reward", json=refused).status_code == 403
        assert http.post("/reward/batch", json={"rewards": [reported, refused]}).is_success


def ask_for_the_target(http: httpx.Client) -> None:
    rows = np.array([CONTEXT, CONTEXT], "<f4")
    body = {"experiment": "doses", "contexts": [CONTEXT], "store": True}
    assert http.post("/target/select", json=body).is_success
    binary = http.post("/target/select?experiment=doses", content=rows.tobytes(), headers=BYTES)
    assert binary.is_success
    lines = "\n".join(json.dumps(CONTEXT) for _ in range(3))
    upload = {"Content-Type": "application/x-ndjson"}
    target = "/target/contexts?experiment=doses"
    assert http.post(target, content=lines, headers=upload).status_code == 201
    assert http.post(target, content=f'{lines}\n["{CONTEXT[0]}"]', headers=upload).is_client_error
    assert http.post(target, content=rows.tobytes()[:-1], headers=BYTES).is_client_error


def ask_badly(http: httpx.Client) -> None:
    """Bodies that are refused, each with a number in it that a message could quote."""
    context = json.dumps(CONTEXT)
    bodies = [
        f'{{"experiment": "doses", "source": {{"context": {context}',
        f'{{"experiment": "doses", "source": {{"context": {context[:-1]}, "{CONTEXT[0]}"]}}}}',
        f'{{"experiment": "doses", "source": {{"context": {context[:-1]}, 1e39]}}}}',
        f'{{"experiment": "doses", "source": {{"context": {context[:-1]}, NaN]}}}}',
        f'{{"experiment": {CONTEXT[0]}}}',
        f'{{"experiment": "doses", "{CONTEXT[0]}": {CONTEXT[1]}}}',
        f'{{"decision_id": "d", "reward": "{REWARD}"}}',
        f'{{"decision_id": "d", "reward": 1{REWARD}}}',
        f'{{"decision_id": {REWARD}, "reward": 1}}',
    ]
    for path in ("/select", "/select/batch", "/reward", "/reward/batch", "/target/select"):
        for body in bodies:
            assert http.post(path, content=body, headers=JSON).is_client_error
    for kind in ("text/html", "application/x-pickle", f"application/{CONTEXT[0]}"):
        answer = http.post("/select", content=context, headers={"Content-Type": kind})
        assert answer.status_code == 415
    assert http.post("/select", json={**round_(0), "target": None}).status_code == 409


def evaluate(http: httpx.Client) -> None:
    asked = {"experiment": "doses", "candidates": [{"kind": "uniform"}]}
    made = http.post("/evaluations", json=asked)
    assert made.status_code == 202, made.text
    wait(http, f"/evaluations/{made.json()['evaluation_id']}", lambda job: job["status"] == "done")


def wait(http: httpx.Client, path: str, is_there: Any) -> None:
    wait_until(lambda: is_there(http.get(path).json()))


def is_trained(state: dict[str, Any]) -> bool:
    is_folded = state["counts"]["folded_rewards"] == 2 * EPISODE
    return bool(is_folded and not state["is_training"])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Collector]]:
    """All that the service printed, and what it sent to the collector."""
    folder = tmp_path_factory.mktemp("canary")
    with collecting() as collector:
        yield printed_by_a_run(folder, collector), collector


def printed_by_a_run(folder: Path, collector: Collector) -> str:
    headers = {"Authorization": f"Bearer {SECRET}", "X-API-Key": SECRET}
    settings = {
        "LOG_LEVEL": "debug",
        "SLOW_REQUEST_SECONDS": "0.000001",  # a line for every request
        "REDIS_URL": f"redis://:{SECRET}@127.0.0.1:1/0",  # nobody is there: lines about that, too
        "OTLP_ENDPOINT": collector.endpoint,
        "TRAINING": "process",  # whose lines are ours, too
    }
    with (
        serving(folder, **settings) as service,
        httpx.Client(base_url=service.url, headers=headers, timeout=PATIENCE_SECONDS) as http,
    ):
        assert http.post("/experiments", json=DECLARED).status_code == 201
        play(http, range(2 * EPISODE))
        ask_for_the_target(http)
        ask_badly(http)
        wait(http, "/experiments/doses/state", is_trained)
        evaluate(http)
        assert service.stop() == 0
        return service.printed


def found_in(text: str) -> list[str]:
    """The canaries that a text holds: secrets, and numbers cut or rounded to four digits or more."""
    found = [number for number in NUMBERS if any(form in text for form in _forms(abs(number)))]
    return [*map(str, found), *([SECRET] if SECRET in text else [])]


def _forms(number: float) -> tuple[str, str]:
    return str(number)[1:6], f"{number:.4f}"[1:]


def test_a_canary_would_be_found():
    assert found_in(f"reward={REWARD:.4f} at redis://:{SECRET}@here") == [str(REWARD), SECRET]


def test_no_value_and_no_secret_is_in_the_logs(run: tuple[str, Collector]):
    printed, _ = run
    leaks = [line for line in printed.splitlines() if found_in(line)]
    assert leaks == []


def test_the_run_had_something_to_say(run: tuple[str, Collector]):
    lines = [json.loads(line) for line in run[0].splitlines() if line.startswith("{")]
    actions = {line["action"] for line in lines}
    assert {"request_slow", "bus_failed", "episode_trained", "evaluation_done"} <= actions
    ids = {line["request_id"] for line in lines if line["action"] == "request_slow"}
    assert len(ids) > 100


def test_no_value_and_no_secret_is_in_the_traces(run: tuple[str, Collector]):
    _, collector = run
    assert {span.name for span in collector.spans()} >= {
        "POST /select",
        "score",
        "append",
        "episode",
    }
    assert found_in("".join(body.decode("latin-1") for body in collector.bodies)) == []
