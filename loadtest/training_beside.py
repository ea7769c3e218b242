"""Starts trainings on demand: feeds other experiments until an encoder trains."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from daband_client import Round
from loadtest.patient_client import patient_client
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
        self._client = patient_client(service)
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
        self._create()
        self._feed(np.random.default_rng(7))
        self._wait(lambda noted: bool(noted.get("is_training") or noted.get("last_training")))
        self._begun = time.monotonic()

    def finish(self) -> str:
        """Wait until it is over; how long it took, in words."""
        self._wait(lambda noted: bool(noted.get("last_training")))
        self.durations.append(time.monotonic() - self._begun)
        self.count += 1
        return f"an encoder was trained for {self.durations[-1]:.1f} s"

    def _create(self) -> None:
        config = {"episode_length": ROUNDS, "steps_per_episode": self._steps}
        shape = {"kind": "shared", "shape": [SIZE]}
        self._client.create_experiment(self._name, ARMS, shape, config=config)

    def _feed(self, rng: np.random.Generator) -> None:
        contexts = rng.standard_normal((ROUNDS, 2, SIZE))
        selected = self._client.select_many(self._name, [Round(*pair) for pair in contexts])
        chosen = [each.source.decision_id for each in selected if each.source is not None]
        self._client.reward_many({each: number % 2 for number, each in enumerate(chosen)})

    def _wait(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition(self._client.state(self._name).noted):
            if time.monotonic() > deadline:
                raise TimeoutError("no encoder was trained")
            time.sleep(POLL_SECONDS)
