"""The frozen policy: one encoder, θ and widths, in single precision, on one device."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from model.bandit.confidence import Confidence, decision_scores
from model.bandit.linucb import Factors
from model.bandit.selection import TIE_TOLERANCE, drawn_arms, mixed_probabilities
from model.bandit.ucb import linear_scores
from model.config import BanditConfig
from model.encoders.base import FrozenEncoder
from model.encoders.size import decision_multiplications
from model.randomness import KeyedUniforms, bytes_key, draw_keys
from model.rounds import (
    Booleans,
    Domain,
    Doubles,
    Floats,
    Keys,
    Scores,
    Selection,
    TargetSelection,
    checked_contexts,
)


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """The versions that a policy was built from."""

    version: int
    encoder_version: int
    offset: int


class Policy:
    """Scores and selects whole batches in one forward pass; it is immutable.

    Contexts are (n, *shape), or (n, K, *shape) for per-arm contexts; `eligible` (n, K) narrows
    the arms (and masks padding where rounds have different numbers of arms).
    """

    def __init__(
        self,
        config: BanditConfig,
        seed: int,
        encoder: FrozenEncoder,
        factors: Factors,
        version: PolicyVersion,
        confidence: Confidence | None = None,
    ) -> None:
        self.config = config
        self.seed = seed
        self.version = version
        self.confidence = confidence
        self.device = encoder.device
        self.multiplications = decision_multiplications(config)  # estimated, of one decision
        self._encoder = encoder
        self._forward = encoder.forwards
        self._linear_scores = linear_scores(factors, config.alpha, self.device)
        self._on_cpu = self.device.type == "cpu"
        self._shape = config.context_shape
        self._is_joint = config.is_joint
        self._uniforms = KeyedUniforms(seed, "draw")
        # Scores are at most of the order of the largest bonus, α/√γ, or 1.
        self._tolerance = TIE_TOLERANCE * max(1.0, config.alpha / config.ridge**0.5)

    def latents(self, contexts: Floats, domain: Domain) -> Floats:
        """φ of contexts (n, *shape), (n, d) on the host."""
        return self._encoder.on_host(contexts, domain)

    def score_many(self, contexts: object, domain: Domain) -> Scores:
        """Mean, bonus and UCB of every arm, each (n, K)."""
        return self._scored(self._checked(contexts, None), domain)

    def select_many(
        self,
        contexts: object,
        domain: Domain,
        decisions: Sequence[str] | Keys,
        eligible: Booleans | None = None,
    ) -> Selection:
        """One arm for each row, drawn from exact probabilities by (seed, decision).

        `decisions` are the decisions' ids, or their `draw_keys`, which are faster.
        """
        array = self._checked(contexts, eligible)
        if len(decisions) != len(array):
            raise ValueError(f"decisions: {len(decisions)} ids for {len(array)} contexts")
        keys = decisions if isinstance(decisions, np.ndarray) else draw_keys(decisions)
        if keys.dtype != np.uint64 or keys.ndim != 1:
            raise ValueError("decisions: keys must be a row of uint64")
        scores = self._scored(array, domain)
        probabilities = mixed_probabilities(
            scores.ucb, eligible, self.config.epsilon, self._tolerance
        )
        arms = drawn_arms(probabilities, self._uniforms, keys)
        return Selection(arms, probabilities, scores)

    def select_target(self, contexts: object, eligible: Booleans | None = None) -> TargetSelection:
        """The best arm for each row of the target, and what it is expected to earn.

        Nothing is learned from these decisions, so nothing is explored: ε = 0. Ties are drawn by the
        context, so that equal contexts get equal arms. Without a confidence model the confidence is 0.
        """
        array = self._checked(contexts, eligible)
        scores = self._scored(array, Domain.TARGET)
        probabilities = mixed_probabilities(scores.ucb, eligible, 0.0, self._tolerance)
        arms = np.asarray(probabilities.argmax(axis=1))
        tied = np.flatnonzero(probabilities[np.arange(len(arms)), arms] < 1.0)
        for row in tied.tolist():
            keys = np.array([bytes_key(array[row].tobytes())], dtype=np.uint64)
            arms[row] = drawn_arms(probabilities[row : row + 1], self._uniforms, keys)[0]
        return TargetSelection(arms, probabilities, scores, self._rated(scores, eligible), tied)

    def _rated(self, scores: Scores, eligible: Booleans | None) -> Doubles:
        if self.confidence is None or not len(scores.mean):
            return np.zeros(len(scores.mean))
        mean = scores.mean.astype(np.float64)
        return self.confidence.rate(decision_scores(mean, self._is_joint, eligible))

    def _checked(self, contexts: object, eligible: Booleans | None) -> Floats:
        array = checked_contexts(contexts, self._shape)
        leading = array.ndim - len(self._shape)
        if leading != (2 if self._is_joint else 1):
            raise ValueError(f"context: expected a batch of contexts, got shape {array.shape}")
        arm_count = array.shape[1] if self._is_joint else self.config.arm_count
        if arm_count < 1:
            raise ValueError("arms: a round needs at least one arm")
        if eligible is not None:
            _check_eligible(eligible, (len(array), arm_count))
        return array

    def _scored(self, contexts: Floats, domain: Domain) -> Scores:
        shape = (len(contexts), contexts.shape[1] if self._is_joint else self.config.arm_count)
        if not len(contexts):
            empty = np.zeros(shape, dtype=np.float32)
            return Scores(empty, empty, empty)
        rows = contexts.reshape(-1, *self._shape)
        if self._on_cpu:
            scores = self._linear_scores[domain](self._forward[domain](rows))
        else:
            with torch.inference_mode():
                latents = self._forward[domain](self._moved(rows))
                scores = self._linear_scores[domain](latents).cpu().numpy()
        return Scores(*(each.reshape(shape) for each in scores))

    def _moved(self, contexts: Floats) -> torch.Tensor:
        writable = np.require(contexts, requirements=["C", "W"])  # torch warns about others
        return torch.from_numpy(writable).to(self.device)


def _check_eligible(eligible: Booleans, shape: tuple[int, int]) -> None:
    if eligible.dtype != np.bool_ or eligible.shape != shape:
        raise ValueError(f"eligible: expected booleans of shape {shape}")
    if not eligible.any(axis=1).all():
        raise ValueError("eligible: a round needs at least one eligible arm")
