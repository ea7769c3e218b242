"""A world of few contexts, so that a policy's value is known exactly, and logs of it."""

from dataclasses import dataclass

import numpy as np

from model.config import system_config
from model.learner import Learner
from model.ope.logged import LoggedRounds
from model.rounds import Domain, RewardedRound
from tests.support.ope import logged_rounds

CONTEXTS = 12
SIZE = 6
REFRESH = 50  # rounds between two policies of an adaptive log


@dataclass(frozen=True)
class SmallWorld:
    """`CONTEXTS` equally likely contexts; each arm pays 1 with a probability that depends on both.

    `rate` is about the mean reward; `is_binary` rewards are 0 or 1, others lie between.
    """

    seed: int
    arm_count: int
    rate: float = 0.4
    is_binary: bool = True

    @property
    def contexts(self) -> np.ndarray:
        drawn = np.random.default_rng((self.seed, 1)).standard_normal((CONTEXTS, SIZE))
        return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True), dtype=np.float32)

    @property
    def expected(self) -> np.ndarray:
        """The expected reward of each arm in each context."""
        rng = np.random.default_rng((self.seed, 2))
        return np.asarray(2 * self.rate * rng.random((CONTEXTS, self.arm_count)))

    def value(self, policy: np.ndarray) -> float:
        """The exact value of a policy (contexts, K)."""
        return float((policy * self.expected).sum(axis=1).mean())

    def greedy(self, share: float = 0.9) -> np.ndarray:
        """A policy that mostly plays the arm after the best one: fixed, good for nothing special."""
        arms = (self.expected.argmax(axis=1) + 1) % self.arm_count
        return np.asarray(share * np.eye(self.arm_count)[arms] + (1 - share) / self.arm_count)

    def rewards(self, expected: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if self.is_binary:
            return np.asarray(rng.random(expected.shape) < expected, dtype=np.float64)
        return np.asarray(expected * (0.5 + rng.random(expected.shape)), dtype=np.float64).clip(
            0, 1
        )

    def log(
        self, logger: np.ndarray, n: int, rng: np.random.Generator
    ) -> tuple[LoggedRounds, np.ndarray]:
        """n rounds that a fixed logger (contexts, K) made, and which context each had."""
        seen = rng.integers(CONTEXTS, size=n)
        arms = drawn(logger[seen], rng)
        rewards = self.rewards(self.expected[seen, arms], rng)
        return logged_rounds(arms, rewards, logger[seen], self.contexts[seen]), seen

    def adaptive_log(
        self, n: int, rng: np.random.Generator, epsilon: float
    ) -> tuple[LoggedRounds, np.ndarray]:
        """n rounds that our own learner made while it learned from them."""
        config = system_config(
            "linucb", arm_count=self.arm_count, context_shape=(SIZE,), epsilon=epsilon, alpha=0.5
        )
        learner = Learner(config, seed=int(rng.integers(1 << 31)))
        seen = rng.integers(CONTEXTS, size=n)
        arms, rewards = np.zeros(n, dtype=np.int64), np.zeros(n)
        logger = np.zeros((n, self.arm_count))
        for start in range(0, n, REFRESH):
            rows = np.arange(start, min(n, start + REFRESH))
            contexts = self.contexts[seen[rows]]
            keys = rng.integers(1 << 62, size=len(rows), dtype=np.uint64)
            made = learner.policy().select_many(contexts, Domain.SOURCE, keys)
            arms[rows], logger[rows] = made.arms, made.probabilities
            rewards[rows] = self.rewards(self.expected[seen[rows], arms[rows]], rng)
            for row in rows.tolist():
                learner.observe(
                    RewardedRound(
                        row,
                        Domain.SOURCE,
                        self.contexts[seen[row]],
                        int(arms[row]),
                        float(rewards[row]),
                    )
                )
        return logged_rounds(arms, rewards, logger, self.contexts[seen]), seen


def drawn(probabilities: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One arm a row."""
    points = rng.random((len(probabilities), 1)) * probabilities.sum(axis=1, keepdims=True)
    return np.asarray((points < probabilities.cumsum(axis=1)).argmax(axis=1))
