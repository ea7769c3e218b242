"""On logs that the service itself made while it learned, a fixed candidate's value is unbiased."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model.config import system_config
from model.learner import Learner
from model.ope.candidates import FrozenCandidate
from model.rounds import Domain
from model.state.snapshot import to_bytes
from service.evaluating.candidates import CandidateSpec
from service.evaluating.request import EvaluationRequest
from service.evaluating.running import EvaluationStores, evaluated_here, planned
from tests.support.api import Api, running_api
from tests.support.builders import play
from tests.support.ope import logged_rounds
from tests.support.storage import migrated, sqlite_url
from tests.support.waiting import eventually
from tests.support.worlds import LinearWorld, world_config

WORLD = LinearWorld(seed=11, arm_count=4, size=6)
SPEC: dict[str, Any] = {
    "arms": ["a", "b", "c", "d"],
    "context": {"kind": "shared", "shape": [6]},
    "method": "linucb",
    "config": {"epsilon": 0.3, "alpha": 0.3},
}
BATCH, BATCHES = 40, 5
TOGETHER = 10  # runs on one database: a trainer looks after every experiment it has


@asynccontextmanager
async def running_service(folder: Path) -> AsyncIterator[Api]:
    url = sqlite_url(folder / "daband.db")
    await migrated(url)
    async with running_api(url, trainer_inside=True) as api:
        yield api


@pytest.fixture(scope="module")
def candidate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that learned a little elsewhere, as a file."""
    base = system_config("linucb", arm_count=4, context_shape=(6,), epsilon=0.1)
    learner = Learner(world_config(WORLD, base, episode_length=32), seed=77)
    play(learner, WORLD, 2)
    path = tmp_path_factory.mktemp("candidate") / "policy.daband"
    path.write_bytes(to_bytes(learner, 1, with_contexts=False))
    return path


def true_value(path: Path) -> float:
    """Its value over many fresh contexts; the error is below 0.0005."""
    from model.state.restore import restore_policy

    made = FrozenCandidate(restore_policy(path.read_bytes()), Domain.SOURCE)
    draw = WORLD.draw(Domain.SOURCE, 200_000, "truth")
    nothing = np.zeros(len(draw.contexts))
    rounds = logged_rounds(nothing, nothing, np.full((len(nothing), 4), 0.25), draw.contexts)
    return float((made.probabilities(rounds) * draw.expected).sum(axis=1).mean())


async def run(service: Api, number: int) -> None:
    """One experiment through the API: each batch is decided by what was learned from the last."""
    name = f"run-{number}"
    await service.http.post("/experiments", json={"name": name, "seed": number, **SPEC})
    draw = WORLD.draw(Domain.SOURCE, BATCH * BATCHES, "run", number)
    for batch in range(BATCHES):
        rows = range(batch * BATCH, (batch + 1) * BATCH)
        rounds = [{"source": {"context": draw.contexts[row].tolist()}} for row in rows]
        body = {"experiment": name, "rounds": rounds}
        made = (await service.http.post("/select/batch", json=body)).json()["rounds"]
        rewards = []
        for row, each in zip(rows, made, strict=True):
            arm = SPEC["arms"].index(each["source"]["arm"])
            reward = WORLD.reward(float(draw.expected[row, arm]), number, row)
            rewards.append({"decision_id": each["source"]["decision_id"], "reward": reward})
        await service.http.post("/reward/batch", json={"rewards": rewards})
        await _learned(service, name, (batch + 1) * BATCH)


async def _learned(service: Api, name: str, rewards: int) -> None:
    async def is_folded() -> bool:
        state = (await service.http.get(f"/experiments/{name}/state")).json()
        served = await service.services.policies.current(name)
        is_newest = served.version == state["policy_version"]
        return bool(state["counts"]["folded_rewards"] >= rewards and is_newest)

    await eventually(is_folded)


async def estimates(service: Api, number: int, path: Path) -> dict[str, Any]:
    services = service.services
    stores = EvaluationStores(services.experiments, services.event_log, services.snapshots)
    experiment = await services.experiments.get(f"run-{number}")
    wanted = CandidateSpec(kind="file", path=str(path))
    request = EvaluationRequest(experiment=experiment.name, candidates=(wanted,))
    plan = await planned(stores, experiment, request)
    result = await evaluated_here(plan, services.event_log)
    (found,) = result["candidates"]
    assert result["rounds"] == BATCH * BATCHES
    assert found["support"]["version_count"] >= BATCHES
    return dict(found["estimates"])


async def scores(folder: Path, path: Path, runs: int) -> dict[str, float]:
    """How many standard errors each estimator's mean over the runs lies from the truth."""
    truth = true_value(path)
    errors: dict[str, list[float]] = {"ips": [], "dr": []}
    for first in range(0, runs, TOGETHER):
        async with running_service(folder / f"{first}") as service:
            for number in range(first, min(runs, first + TOGETHER)):
                await run(service, number)
                found = await estimates(service, number, path)
                for name, values in errors.items():
                    values.append(found[name]["value"] - truth)
    return {
        name: float(np.mean(values) / (np.std(values, ddof=1) / np.sqrt(runs)))
        for name, values in errors.items()
    }


def check(found: dict[str, float]) -> None:
    assert all(abs(score) <= 3 for score in found.values()), found


@pytest.mark.timeout(300)
@pytest.mark.slow
async def test_ips_and_dr_are_unbiased_in_a_few_runs(tmp_path: Path, candidate: Path):
    check(await scores(tmp_path, candidate, 12))


@pytest.mark.slow
@pytest.mark.timeout(3000)
async def test_ips_and_dr_are_unbiased_in_200_runs(
    tmp_path: Path, candidate: Path, capsys: pytest.CaptureFixture[str]
):
    found = await scores(tmp_path, candidate, 200)
    with capsys.disabled():
        sys.stdout.write(f"\nstandard errors from the truth over 200 runs: {found}\n")
    check(found)
