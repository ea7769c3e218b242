"""Offline scoring: a policy file, no service, the endpoint's answers bit for bit."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from daband_client import Client, Round
from service.cli.main import app
from tests.support.processes.daband import Server
from tests.support.processes.service import ROOT, clean_environment
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ROWS = np.random.default_rng(2).standard_normal((2300, 4)).astype(np.float32)
CONFIG = {
    "episode_length": 32,
    "latent_size": 8,
    "hidden_sizes": [16],
    "steps_per_episode": 8,
    "batch_size": 16,
    "holdout_share": 0.4,
}
SIDES = {
    "shared": ["low", "mid", "high"],
    "per_arm": ["low", "mid"],
}


def daband(*arguments: str) -> str:
    """What a command prints, in this process: a new one would load everything again."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def taught(client: Client, name: str, kind: str) -> None:
    """An experiment whose policy rates its decisions."""
    context = {"kind": kind, "shape": [4]}
    declared: dict[str, Any] = {
        "arms": SIDES[kind],
        "context": context,
        "seed": 3,
        "config": CONFIG,
    }
    client.create_experiment(name=name, fallback_arm="low", **declared)
    client.upload_contexts(name, ROWS[:200] + 0.2)
    for start in range(0, len(ROWS), 160):
        learn(client, name, ROWS[start : start + 160], kind)
        if is_rating(client, name, kind):
            return
    pytest.fail("the policy rates nothing")


def learn(client: Client, name: str, rows: np.ndarray, kind: str) -> None:
    """Decide for these contexts and reward it, and wait until all of it is learned."""
    sides = [row if kind == "shared" else dict.fromkeys(SIDES[kind], row) for row in rows]
    selected = client.select_many(name, [Round(source=side) for side in sides])
    ids = [each.source.decision_id for each in selected if each.source]
    client.reward_many(dict(zip(ids, (rows[:, 0] > 0).astype(float), strict=True)))

    def is_idle() -> bool:
        state = client.state(name)
        is_folded = state.counts["folded_rewards"] == state.counts["source_rewards"]
        return is_folded and state.lag == 0 and not state.noted["is_training"]

    wait_until(is_idle)


def is_rating(client: Client, name: str, kind: str) -> bool:
    """Not before an encoder was accepted, and activated with enough held-out rounds."""
    version = client.state(name).policy_version
    given = ROWS[:1] if kind == "shared" else [dict.fromkeys(SIDES[kind], ROWS[0])]
    wait_until(lambda: client.target_select(name, given).policy_version == version)
    return client.target_select(name, given).decisions[0].transfer_confidence > 0


def answers(
    client: Client, name: str, contexts: Any, version: int, floor: float | None = None
) -> list[dict[str, Any]]:
    """What the endpoint says, a thousand contexts a request, all under one policy."""
    found = []
    for start in range(0, len(contexts), 1000):
        answered = client.target_select(name, contexts[start : start + 1000], floor)
        assert answered.policy_version == version
        found += [msgspec.to_builtins(each) for each in answered.decisions]
    return found


def scoring(policy: Path, floor: float) -> tuple[str, ...]:
    return ("--policy", str(policy), "--confidence-floor", repr(floor))


@pytest.mark.parametrize("kind", ["shared", "per_arm"])
def test_score_is_bit_equal_to_the_endpoint(service: Server, tmp_path: Path, kind: str):
    name, url = f"doses-{kind}", ("--url", service.url)
    policy, contexts = tmp_path / "policy.safetensors", tmp_path / "contexts.npy"
    rows = ROWS if kind == "shared" else np.stack([ROWS, ROWS[::-1]], axis=1)
    given = rows if kind == "shared" else [dict(zip(SIDES[kind], row, strict=True)) for row in rows]
    np.save(contexts, rows)
    with Client(service.url) as client:
        taught(client, name, kind)
        version = client.state(name).policy_version
        stated = daband("export", name, "--out", str(policy), *url)
        rated = [each["transfer_confidence"] for each in answers(client, name, given, version)]
        # The median divides the contexts, unless the encoder that serves rates all of them the same.
        floors = (0.0, float(np.median(rated)), 1.0)
        expected = {floor: answers(client, name, given, version, floor) for floor in floors}
    assert str(policy) in stated
    manifest = json.loads(policy.with_suffix(".json").read_text())
    assert (manifest["experiment"], manifest["version"]) == (name, version)
    for floor in floors:
        printed = daband("score", *scoring(policy, floor), "--contexts", str(contexts))
        assert [json.loads(line) for line in printed.splitlines()] == expected[floor]
    assert {each["abstained"] for each in expected[0.0]} == {False}
    assert {each["abstained"] for each in expected[1.0]} == {True}
    lines, out = tmp_path / "contexts.jsonl", tmp_path / "decisions.jsonl"
    texts = [
        json.dumps(
            row.tolist() if kind == "shared" else dict(zip(SIDES[kind], row.tolist(), strict=True))
        )
        for row in rows
    ]
    lines.write_text("\n".join(texts) + "\n")
    floor = floors[1]
    daband("score", *scoring(policy, floor), "--contexts", str(lines), "--out", str(out))
    assert [json.loads(line) for line in out.read_text().splitlines()] == expected[floor]


def test_scoring_needs_no_service_and_refuses_bad_files(tmp_path: Path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"no policy")
    np.save(tmp_path / "contexts.npy", ROWS[:3])
    command = ["score", "--policy", str(bad), "--contexts", str(tmp_path / "contexts.npy")]
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", *command],
        cwd=ROOT,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "not a policy file\n")


def test_report_and_upload_by_command(service: Server, tmp_path: Path):
    url = ("--url", service.url)
    arms = ("--arm", "a", "--arm", "b", "--shape", "4")
    daband("experiment", "create", "plain", *arms, *url)
    np.save(tmp_path / "contexts.npy", ROWS)
    for status in ("created", "already_recorded"):
        stated = json.loads(daband("upload", "plain", str(tmp_path / "contexts.npy"), *url))
        assert (stated["status"], stated["contexts"]) == (status, 2300)
    page = tmp_path / "report.html"
    daband("report", "plain", "--out", str(page), *url)
    assert page.read_text().startswith("<!doctype html>")
    opened = json.loads(daband("experiment", "open", "plain", "--best-reward", "0.5", *url))
    assert (opened["phase"], opened["best_reward"]) == ("continued", 0.5)
    assert service.stop() == 0
