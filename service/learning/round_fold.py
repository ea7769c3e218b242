"""Folds runs of decisions and rewards, as columns: the state is that of one event after the other."""

from collections.abc import Sequence

import numpy as np

from model.learner import Learner
from model.rounds import Domain, RoundBlock
from service.decision_codec import chosen_contexts, propensity
from service.experiment_spec import ExperimentSpec
from service.records import EventKind, StoredEvent


def fold_rounds(learner: Learner, spec: ExperimentSpec, events: Sequence[StoredEvent]) -> None:
    """Keep the contexts of the decisions and fold the rewards, which end at most one episode."""
    for domain in Domain:
        decisions = [
            event
            for event in events
            if event.kind is EventKind.DECISION and _domain(event) is domain
        ]
        if decisions:
            offsets = np.array([event.offset for event in decisions])
            learner.observe_decided(offsets, domain, chosen_contexts(decisions, spec))
    rewards = [event for event in events if event.kind is EventKind.REWARD]
    if rewards:
        learner.observe_block(_block(rewards, spec))


def _block(rewards: Sequence[StoredEvent], spec: ExperimentSpec) -> RoundBlock:
    decisions = [_decision(event) for event in rewards]
    return RoundBlock(
        references=np.array([each.offset for each in decisions]),
        is_target=np.array([_domain(each) is Domain.TARGET for each in decisions]),
        contexts=chosen_contexts(decisions, spec),
        arms=np.array([spec.arm_index(each.arm or "") for each in decisions]),
        rewards=np.array([each.reward for each in rewards], dtype=np.float64),
        propensities=np.array([propensity(each) for each in decisions]),
    )


def _decision(reward: StoredEvent) -> StoredEvent:
    decision = reward.decision
    if decision is None or reward.reward is None or decision.arm is None:
        raise ValueError(f"the reward at offset {reward.offset} has no decision")
    return decision


def _domain(event: StoredEvent) -> Domain:
    if event.domain is None:
        raise ValueError(f"the decision at offset {event.offset} has no domain")
    return event.domain
