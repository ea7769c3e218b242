"""The reward model of DM, DR and SWITCH-DR: ridge regression on earlier rounds.

A prediction for a round uses earlier rounds only, so q̂ is independent of the round's own reward. DR
stays unbiased whatever the quality of q̂, also on adaptively collected logs, in one pass.
"""

import numpy as np

from model.ope.logged import LoggedRounds
from model.randomness import generator
from model.rounds import Doubles, Floats

SHORTEST, LONGEST = 32, 4096  # rounds between two fits
MOST_FEATURES = 64  # wider contexts are projected at random, to bound the cost of a round


class RidgeRewards:
    """q̂(x, a): one ridge regression for each arm, or one for all arms with per-arm contexts."""

    def __init__(self, arm_count: int, is_per_arm: bool, ridge: float = 1.0, seed: int = 0) -> None:
        self._is_per_arm = is_per_arm
        self._model_count = 1 if is_per_arm else arm_count
        self._ridge = ridge
        self._seed = seed
        self._seen = 0
        self._projection: Doubles | None = None
        self._gram: Doubles = np.zeros((0, 0, 0))
        self._cross: Doubles = np.zeros((0, 0))
        self._theta: Doubles = np.zeros((0, 0))

    def predict_then_learn(self, rounds: LoggedRounds) -> Doubles:
        """q̂ of every arm (n, K), each round's from earlier rounds; refitted as their number doubles."""
        found, start = [], 0
        while start < len(rounds):
            stop = start + min(max(self._seen, SHORTEST), LONGEST)
            part = rounds.rows(start, stop)
            found.append(self.predict(part))
            self.learn(part)
            start = stop
        return np.concatenate(found) if found else np.zeros(rounds.eligible.shape)

    def predict(self, rounds: LoggedRounds) -> Doubles:
        """q̂ of every arm (n, K), clipped to [0, 1]; ½ before anything was seen."""
        if not self._theta.size:
            return np.full(rounds.eligible.shape, 0.5)
        features = self._features(rounds.contexts, rounds)
        found = features @ self._theta[0] if self._is_per_arm else features @ self._theta.T
        return np.asarray(found.clip(0.0, 1.0))

    def learn(self, rounds: LoggedRounds) -> None:
        """Fit to rounds that were already predicted."""
        features = self._features(rounds.contexts, rounds)
        self._seen += len(rounds)
        if not self._gram.size:
            self._start(features.shape[-1])
        if self._is_per_arm:
            chosen = features[np.arange(len(rounds)), rounds.arms]
            self._add(0, chosen, rounds.rewards)
        else:
            for arm in np.unique(rounds.arms):
                rows = rounds.arms == arm
                self._add(int(arm), features[rows], rounds.rewards[rows])
        regularised = self._gram + self._ridge * np.eye(features.shape[-1])
        self._theta = np.asarray(
            np.linalg.solve(regularised, self._cross[..., None])[..., 0], float
        )

    def _start(self, size: int) -> None:
        self._gram = np.zeros((self._model_count, size, size))
        self._cross = np.zeros((self._model_count, size))

    def _add(self, model: int, features: Doubles, rewards: Doubles) -> None:
        self._gram[model] += features.T @ features
        self._cross[model] += features.T @ rewards

    def _features(self, contexts: Floats, rounds: LoggedRounds) -> Doubles:
        """Flat contexts, projected if wide, with a constant: (n, p) or (n, K, p)."""
        leading = rounds.eligible.shape if self._is_per_arm else (len(rounds),)
        flat = contexts.reshape(*leading, -1).astype(np.float64)
        if flat.shape[-1] > MOST_FEATURES:
            flat = flat @ self._projected(flat.shape[-1])
        return np.concatenate([flat, np.ones((*leading, 1))], axis=-1)

    def _projected(self, size: int) -> Doubles:
        if self._projection is None:
            rng = generator(self._seed, "reward model")
            self._projection = rng.standard_normal((size, MOST_FEATURES)) / np.sqrt(MOST_FEATURES)
        return self._projection
