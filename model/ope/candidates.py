"""Policies to be evaluated: each gives the probability of every arm, round by round.

The probabilities may depend on earlier rounds (a learner's do), but never on the round's own reward.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from model.bandit.policy import Policy
from model.learner import Learner
from model.ope.logged import LoggedRounds
from model.rounds import Domain, Doubles, Floats, Integers, RoundBlock


class EvaluationPolicy(Protocol):
    """A policy under evaluation."""

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """The probability of every arm, (n, K); each row sums to 1 over the eligible arms."""
        ...


class UniformCandidate:
    """Every eligible arm with the same probability."""

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """1 / number of eligible arms."""
        return np.asarray(rounds.eligible / rounds.arm_counts[:, None])


class FixedArmCandidate:
    """Always the same arm; uniform in rounds where it is not eligible."""

    def __init__(self, arm: int) -> None:
        self._arm = arm

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        found = UniformCandidate().probabilities(rounds)
        playable = rounds.eligible[:, self._arm]
        found[playable] = 0.0
        found[playable, self._arm] = 1.0
        return found


class TableCandidate:
    """Fixed probabilities of the arms, one row for each segment, renormalised over the eligible arms."""

    def __init__(self, rows: Mapping[int, Doubles]) -> None:
        self._rows = rows

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """The segment's row, scaled to the eligible arms."""
        unknown = sorted(set(rounds.segments.tolist()) - set(self._rows))
        if unknown:
            raise ValueError("policy: no row for a segment of the log")
        stacked = np.stack([self._rows[segment] for segment in rounds.segments.tolist()])
        kept = stacked * rounds.eligible
        totals = kept.sum(axis=1, keepdims=True)
        if not (totals > 0).all():
            raise ValueError("policy: all eligible arms of a round have probability 0")
        return np.asarray(kept / totals)


class FrozenCandidate:
    """A policy as it would be served."""

    def __init__(self, policy: Policy, domain: Domain) -> None:
        self._policy = policy
        self._domain = domain

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """The policy's exact probabilities."""
        made = self._policy.select_many(rounds.contexts, self._domain, rounds.keys, rounds.eligible)
        return made.probabilities


class LearningCandidate:
    """A fresh learner that learns from every logged round in order.

    Its policy is refreshed every `refresh` rounds, as when a service publishes a snapshot. It learns from
    the logged arms, so the estimate is that of a learner with the logger's exploration.
    `model.ope.rejection` replays a learner on its own choices.
    """

    def __init__(self, learner: Learner, refresh: int = 64) -> None:
        self._learner = learner
        self._refresh = refresh

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """The learner's probabilities for each part of the rounds, before it learns from that part."""
        found = []
        for part in rounds.parts(self._refresh):
            found.append(decided(self._learner.policy(), part))
            learn(self._learner, part)
        return np.concatenate(found) if found else np.zeros(rounds.eligible.shape)


def decided(policy: Policy, rounds: LoggedRounds) -> Doubles:
    """A policy's probabilities for rounds of the source, (n, K)."""
    return FrozenCandidate(policy, Domain.SOURCE).probabilities(rounds)


def learn(learner: Learner, rounds: LoggedRounds) -> None:
    """Fold logged rounds in order, with the target contexts seen before them; train when due."""
    start = 0
    while start < len(rounds):
        # Up to the end of the episode: its update sees all contexts before its last reward.
        end = min(len(rounds), start + learner.rounds_to_update)
        _fold(learner, rounds.rows(start, end))
        learner.train()
        start = end
    left = rounds.unlabeled[rounds.unlabeled_before >= len(rounds)]
    _observe(learner, np.full(len(left), learner.offset), Domain.TARGET, left)


def _fold(learner: Learner, rounds: LoggedRounds) -> None:
    contexts, arms = rounds.contexts, rounds.arms
    if learner.config.is_joint:
        contexts = contexts[np.arange(len(rounds)), arms]
    _observe(learner, rounds.references[rounds.unlabeled_before], Domain.TARGET, rounds.unlabeled)
    _observe(learner, rounds.references, Domain.SOURCE, contexts)
    of_target = np.zeros(len(rounds), dtype=np.bool_)
    columns = rounds.references, of_target, contexts, arms, rounds.rewards, rounds.propensities
    learner.observe_block(RoundBlock(*columns))


def _observe(learner: Learner, references: Integers, domain: Domain, contexts: Floats) -> None:
    if len(contexts):
        learner.observe_decided(references, domain, contexts)
