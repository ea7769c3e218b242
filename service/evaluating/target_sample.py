"""A sample of source rounds and target contexts, to value candidates in the target domain."""

from dataclasses import replace
from typing import Any

import numpy as np

from model import Domain, Doubles, restore_policy
from model.ope import (
    COLUMNS,
    EvaluationOptions,
    FrozenCandidate,
    LoggedRounds,
    SourceRounds,
    target_value,
)
from service.evaluating.candidates import Made

MOST = 4096  # newest rounds and contexts that are kept
LEAST = 64


class TargetSample:
    """The newest source rounds and target contexts.

    `blob` is the newest snapshot, whose encoder is used for candidates without one.
    """

    def __init__(self, blob: bytes | None, is_per_arm: bool) -> None:
        self._blob = blob
        self._is_per_arm = is_per_arm
        self._rounds: LoggedRounds | None = None
        self._contexts: list[np.ndarray] = []

    def add(self, rounds: LoggedRounds) -> None:
        """Add rounds and keep the newest."""
        if len(rounds):
            newest = rounds if self._rounds is None else joined(self._rounds, rounds)
            self._rounds = newest.rows(max(0, len(newest) - MOST), len(newest))
        self._contexts = [*self._contexts, *rounds.unlabeled][-MOST:]

    def value(self, made: Made, options: EvaluationOptions) -> dict[str, Any]:
        """The candidate's value in the target, or the reason why it is not identifiable."""
        reason = self._obstacle(made)
        if reason is not None:
            return {"is_identifiable": False, "reason": reason, "value": None, "interval": None}
        rounds = self._rounds
        assert rounds is not None  # noqa: S101 - checked by `_obstacle`
        encoder = made.policy or restore_policy(self._blob or b"")
        target = np.stack(self._contexts)
        source = SourceRounds(
            encoder.latents(rounds.contexts, Domain.SOURCE).astype(np.float64),
            made.candidate.probabilities(rounds),
            rounds.arms,
            rounds.rewards,
            rounds.propensities,
        )
        latents = encoder.latents(target, Domain.TARGET).astype(np.float64)
        policy = _target_choices(made, rounds, target)
        return target_value(source, latents, policy, options.seed, options.confidence).as_dict()

    def _obstacle(self, made: Made) -> str | None:
        if self._is_per_arm:
            return "target values need one context for all arms"
        if made.policy is None and not made.domain_free:
            return "a candidate that learns or uses only segments has no fixed target policy"
        if made.policy is None and self._blob is None:
            return "there is no snapshot whose encoder could compare the domains"
        if self._rounds is None or min(len(self._rounds), len(self._contexts)) < LEAST:
            return f"at least {LEAST} source rounds and target contexts are needed"
        return None


def joined(first: LoggedRounds, second: LoggedRounds) -> LoggedRounds:
    """Rounds one after the other, without unlabeled contexts."""
    columns = {
        name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in COLUMNS
    }
    return replace(
        first,
        probabilities=None,
        unlabeled=first.unlabeled[:0],
        unlabeled_before=first.unlabeled_before[:0],
        **columns,
    )


def _target_choices(made: Made, rounds: LoggedRounds, target: np.ndarray) -> Doubles:
    """The candidate's probabilities for target contexts, all arms eligible."""
    count, width = len(target), rounds.eligible.shape[1]
    zeros = np.zeros(count, dtype=np.int64)
    asked = replace(
        rounds,
        contexts=target,
        arms=zeros,
        rewards=np.zeros(count),
        propensities=np.ones(count),
        eligible=np.ones((count, width), dtype=np.bool_),
        probabilities=None,
        versions=zeros,
        references=zeros,
        keys=np.zeros(count, dtype=np.uint64),
        segments=zeros,
    )
    if made.policy is None:
        return made.candidate.probabilities(asked)
    return FrozenCandidate(made.policy, Domain.TARGET).probabilities(asked)
