"""Policies to be evaluated: each says, round by round, how probable every arm would be.

What a candidate says of a round may depend on earlier rounds (a learner does), never on the
round's own reward: that is all the estimators ask for.
"""

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from model.bandit.policy import Policy
from model.learner import Learner
from model.ope.logged import LoggedRounds
from model.rounds import Domain, Doubles, Floats, Round


class EvaluationPolicy(Protocol):
    """Something that could have chosen."""

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """The probability of every arm, (n, K); each row sums to 1 over the eligible arms."""
        ...


class UniformCandidate:
    """Every eligible arm alike."""

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """1 / number of eligible arms."""
        return np.asarray(rounds.eligible / rounds.arm_counts[:, None])


class FixedArmCandidate:
    """Always the same arm; every eligible arm alike in rounds where it cannot be played."""

    def __init__(self, arm: int) -> None:
        self._arm = arm

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """1 for the arm."""
        found = UniformCandidate().probabilities(rounds)
        playable = rounds.eligible[:, self._arm]
        found[playable] = 0.0
        found[playable, self._arm] = 1.0
        return found


class TableCandidate:
    """Fixed probabilities of the arms, one row a segment, shared out among the eligible arms."""

    def __init__(self, rows: Mapping[int, Doubles]) -> None:
        self._rows = rows

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """The segment's row, scaled to the eligible arms."""
        unknown = sorted(set(rounds.segments.tolist()) - set(self._rows))
        if unknown:
            raise ValueError("policy: it has no row for a segment of the log")
        stacked = np.stack([self._rows[segment] for segment in rounds.segments.tolist()])
        kept = stacked * rounds.eligible
        totals = kept.sum(axis=1, keepdims=True)
        if not (totals > 0).all():
            raise ValueError("policy: it gives no probability to any eligible arm of a round")
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
    """A learner that starts afresh and learns from every logged round as it comes.

    Its policy is renewed every `refresh` rounds, as a service's is when a snapshot is published.
    It learns from the log's arms, not from its own: the estimate is of a learner that had the
    logger's exploration. `model.ope.rejection` replays one that lives on its own choices.
    """

    def __init__(self, learner: Learner, refresh: int = 64) -> None:
        self._learner = learner
        self._refresh = refresh

    def probabilities(self, rounds: LoggedRounds) -> Doubles:
        """What the learner would do, then it learns from what was done."""
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
    is_joint = learner.config.is_joint
    unlabeled: dict[int, list[Floats]] = {}
    for row, context in zip(rounds.unlabeled_before.tolist(), rounds.unlabeled, strict=True):
        unlabeled.setdefault(row, []).append(context)
    for row, reference in enumerate(rounds.references.tolist()):
        _observe_unlabeled(learner, reference, unlabeled.pop(row, []))
        arm = int(rounds.arms[row])
        context = rounds.contexts[row, arm] if is_joint else rounds.contexts[row]
        learner.observe_context(reference, Domain.SOURCE, context)
        reward, propensity = float(rounds.rewards[row]), float(rounds.propensities[row])
        learner.observe(Round(reference, Domain.SOURCE, context, arm, reward, propensity))
        learner.train()
    for left in unlabeled.values():
        _observe_unlabeled(learner, learner.offset, left)


def _observe_unlabeled(learner: Learner, reference: int, contexts: list[Floats]) -> None:
    for context in contexts:
        learner.observe_context(reference, Domain.TARGET, context)
