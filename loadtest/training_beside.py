"""Starts trainings on demand: feeds other experiments until an encoder trains."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from loadtest.patient_client import PatientClient
from loadtest.service_under_test import ServiceUnderTest

ROUNDS = 256  # of which a training is made
SIZE = 32
ARMS = [f"arm-{number}" for number in range(10)]
TRIAL_STEPS = 200
PATIENCE_SECONDS = 300.0
POLL_SECONDS = 0.05


class Trained:
    """Starts trainings of about a given length, one experiment each, and waits for their end."""

    def __init__(self, service: ServiceUnderTest, seconds: float) -> None:
        self._client = PatientClient(service)
        self._seconds = seconds
        self._steps = TRIAL_STEPS
        self._name = ""
        self._begun = 0.0
        self.count = 0
        self.durations: list[float] = []

    def __enter__(self) -> "Trained":
        self.begin()  # a trial: how long do so many steps take?
        self.finish()
        self._steps = max(1, round(TRIAL_STEPS * self._seconds / self.durations.pop()))
        self.count = 0
        return self

    def __exit__(self, *raised: object) -> None:
        self._client.close()

    def begin(self) -> None:
        """Feed a new experiment; returns when its training is under way."""
        self._name = f"trained-{time.time_ns():x}"
        self._client.create_experiment(self._creation())
        self._feed(np.random.default_rng(7))
        self._wait(lambda state: bool(state.get("is_training") or state.get("last_training")))
        self._begun = time.monotonic()

    def finish(self) -> str:
        """Wait until it is over; how long it took, in words."""
        self._wait(lambda state: bool(state.get("last_training")))
        self.durations.append(time.monotonic() - self._begun)
        self.count += 1
        return f"an encoder was trained for {self.durations[-1]:.1f} s"

    def _creation(self) -> dict[str, Any]:
        config = {"episode_length": ROUNDS, "steps_per_episode": self._steps}
        shape = {"kind": "shared", "shape": [SIZE]}
        return {"name": self._name, "arms": ARMS, "context": shape, "config": config}

    def _feed(self, rng: np.random.Generator) -> None:
        rounds = [
            {side: {"context": rng.standard_normal(SIZE).tolist()} for side in ("source", "target")}
            for _ in range(ROUNDS)
        ]
        selected = self._client.post("/select/batch", {"experiment": self._name, "rounds": rounds})
        rewards = [
            {"decision_id": each["source"]["decision_id"], "reward": number % 2}
            for number, each in enumerate(selected["rounds"])
        ]
        self._client.post("/reward/batch", {"rewards": rewards})

    def _wait(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition(self._client.get(f"/experiments/{self._name}/state")):
            if time.monotonic() > deadline:
                raise TimeoutError("no encoder was trained")
            time.sleep(POLL_SECONDS)
