"""λ = 30 in the service: what is served stays near its best while ruined encoders are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from model import learner as learning
from model.learner import TrainingJob
from model.rounds import Domain
from model.simulate import ClusterWorld, Draw
from model.training.episode import Trained, train_episode
from tests.support.api import Api, running_api
from tests.support.learning import TRAINING, idle_state

EPISODE = 64
EPISODES = 20
WINDOW = (
    10  # episodes, 640 rounds: the served reward is the mean of the newest, as the paper gives it
)
RUINED = frozenset({4, 8, 9, 12, 16})
ARMS = ["a", "b", "c"]


@pytest.fixture
def ruined_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings that end with an encoder which sees nothing of its contexts."""

    def train(job: TrainingJob, *rest: Any) -> Trained:
        trained = train_episode(job, *rest)
        if job.data.episode in RUINED:
            with torch.no_grad():
                for encoder in trained.networks.encoders:  # with the average that is served
                    next(encoder.parameters()).zero_()
        return trained

    monkeypatch.setattr(learning, "train_episode", train)


async def served_reward(api: Api, sample: Draw) -> float:
    """What the served policy earns on source contexts, without the luck of an episode's draws."""
    policy = (await api.services.policies.current("doses")).policy
    keys = np.arange(len(sample.contexts), dtype=np.uint64)
    chances = policy.select_many(sample.contexts, Domain.SOURCE, keys).probabilities
    return float((chances * sample.expected).sum(axis=1).mean())


async def played(api: Api, world: ClusterWorld, number: int) -> None:
    """An episode: one batch, so all under one policy."""
    draws = {domain: world.draw(domain, EPISODE, number) for domain in Domain}
    rounds = [
        {str(domain): {"context": draws[domain].contexts[row].tolist()} for domain in Domain}
        for row in range(EPISODE)
    ]
    body = {"experiment": "doses", "rounds": rounds}
    answers = (await api.http.post("/select/batch", json=body)).json()["rounds"]
    paid = [
        float(draws[Domain.SOURCE].expected[row, ARMS.index(each["source"]["arm"])])
        for row, each in enumerate(answers)
    ]
    sent = [
        {"decision_id": each["source"]["decision_id"], "reward": value}
        for each, value in zip(answers, paid, strict=True)
    ]
    assert (await api.http.post("/reward/batch", json={"rewards": sent})).status_code == 200


@pytest.mark.usefixtures("ruined_episodes")
@pytest.mark.slow
async def test_served_reward_stays_near_its_best_while_ruined_encoders_are_refused(tmp_path: Path):
    world = ClusterWorld(seed=1, arm_count=3, size=8)
    config = {
        "divergence_weight": 30.0,
        "episode_length": EPISODE,
        "hidden_sizes": [32],
        "latent_size": 8,
        "steps_per_episode": 24,
        "batch_size": 32,
        "learning_rate": 0.01,
        "exclusive_rewards": True,
    }
    declared = {
        "name": "doses",
        "arms": ARMS,
        "context": {"kind": "shared", "shape": [8]},
        "seed": 1,
        "config": config,
    }
    sample = world.draw(Domain.SOURCE, 2_000, EPISODES)
    rewards: list[float] = []
    async with running_api(f"sqlite:///{tmp_path / 'daband.db'}", **TRAINING) as api:
        assert (await api.http.post("/experiments", json=declared)).status_code == 201
        for number in range(EPISODES):
            rewards.append(await served_reward(api, sample))
            await played(api, world, number)
            await idle_state(api, EPISODE * len(rewards))
        entries = (await api.http.get("/experiments/doses/audit")).json()["entries"]
        kept = (await api.http.get("/experiments/doses/candidates")).json()["candidates"]
    served = np.convolve(rewards, np.ones(WINDOW) / WINDOW, "valid")
    assert (np.maximum.accumulate(served) - served).max() <= 0.03
    assert served[-1] > 0.8
    refused = {each["details"]["episode"] for each in entries if each["what"] == "encoder_refused"}
    assert refused >= RUINED
    assert {each["episode"] for each in kept} >= RUINED
