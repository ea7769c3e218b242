"""Folds events of the log into a learner; the meaning of each kind of event is defined here.

The trainer and replay share this code, so that a replay gives the served state.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from model import (
    RECIPE,
    Cause,
    ContextCounts,
    Domain,
    Floats,
    GateRule,
    Learner,
    Moments,
    Networks,
    NextUpdate,
    Outcome,
    RoundBlock,
)
from service.codec.context_sets import completed, reference, rows_a_part
from service.codec.decisions import chosen_contexts, propensity
from service.experiment_spec import ExperimentSpec
from service.records import EventKind, NewEvent, StoredEvent

CONCLUSIONS = (EventKind.ACTIVATION, EventKind.REFUSAL, EventKind.CANDIDATE)


class Folder:
    """Folds the log into a learner.

    An activation needs the trained encoder, a restore or promotion needs a stored encoder, and the
    completion of a set of contexts needs its parts. `fold` stops before an event whose dependency was
    not provided yet.
    """

    def __init__(self, learner: Learner, spec: ExperimentSpec) -> None:
        self.learner = learner
        self._spec = spec
        self._outcome: Outcome | None = None
        self._networks: tuple[int, Networks, Moments] | None = None
        self._parts: tuple[int, int] = (0, 0)  # offset of a set of contexts, parts observed

    def provide_outcome(self, outcome: Outcome) -> None:
        """Provide the encoder update for an activation."""
        self._outcome = outcome

    def provide_networks(self, offset: int, networks: Networks, moments: Moments) -> None:
        """Provide the stored networks for the restore or promotion at this offset."""
        self._networks = (offset, networks, moments)

    def observe_part(self, offset: int, number: int, contexts: Floats) -> None:
        """Fold a part of the set of contexts that the event at this offset completes, in order."""
        seen = self._parts[1] if self._parts[0] == offset else 0
        if number != seen:
            raise ValueError(f"part {number} of the contexts at offset {offset} is out of order")
        first = number * rows_a_part(self._spec)
        names = [reference(offset, first + row) for row in range(len(contexts))]
        self.learner.observe_contexts(names, Domain.TARGET, contexts)
        self._parts = (offset, number + 1)

    def fold(self, events: Sequence[StoredEvent]) -> list[StoredEvent]:
        """Fold events in order; returns the rest, from the first event with a missing dependency."""
        start = 0
        while start < len(events):
            end = self._end_of_run(events, start)
            if end == start:
                if not self._can_fold(events[start]):
                    return list(events[start:])
                self._apply(events[start])
                end = start + 1
            else:
                fold_rounds(self.learner, self._spec, events[start:end])
            self.learner.advance(events[end - 1].offset)
            start = end
        return []

    def _end_of_run(self, events: Sequence[StoredEvent], start: int) -> int:
        """The end of a run of decisions and rewards, at most at the reward that ends an episode.

        The training set of an update is the log up to that reward.
        """
        rewards_left = self.learner.rounds_to_update
        for index in range(start, len(events)):
            kind = events[index].kind
            if kind is EventKind.REWARD:
                rewards_left -= 1
                if not rewards_left:
                    return index + 1
            elif kind is not EventKind.DECISION:
                return index
        return len(events)

    def _can_fold(self, event: StoredEvent) -> bool:
        if event.kind is EventKind.ACTIVATION and episode_of(event) == self._pending_episode():
            return self._outcome is not None and self._outcome.episode == episode_of(event)
        if event.kind in (EventKind.RESTORE, EventKind.PROMOTION):
            return self._networks is not None and self._networks[0] == event.offset
        if (found := completed(event)) is not None:
            return self._parts == (event.offset, found.parts)
        return True

    def _apply(self, event: StoredEvent) -> None:
        if event.kind is EventKind.PHASE:
            self.learner.open_target()
        elif event.kind in (EventKind.RESTORE, EventKind.PROMOTION):
            self._restore()
        elif event.kind in CONCLUSIONS:
            self._conclude(event)
        elif event.kind is EventKind.TRAINING:
            self._begin_update(json.loads(event.payload))

    def _begin_update(self, payload: Mapping[str, Any]) -> None:
        """A person's request outlasts an update that is pending; the trainer's would be made again."""
        if payload["cause"] == Cause.REQUEST:
            self.learner.request_update()
        else:
            self.learner.begin_update(covers=int(payload["covers"]))

    def _conclude(self, event: StoredEvent) -> None:
        """Apply a conclusion of the log; conclusions of abandoned updates are ignored."""
        episode = episode_of(event)
        if episode != self._pending_episode():
            return
        self.learner.dismiss(episode)
        outcome, self._outcome = self._outcome, None
        if event.kind is EventKind.ACTIVATION and outcome is not None:
            self.learner.activate(outcome.networks, outcome.moments)

    def _restore(self) -> None:
        """Serve stored networks and abandon a pending update, which started from others."""
        assert self._networks is not None  # noqa: S101 - checked by `_can_fold`
        _, networks, moments = self._networks
        self._networks = self._outcome = None
        if (episode := self._pending_episode()) is not None:
            self.learner.dismiss(episode)
        self.learner.activate(networks, moments)

    def _pending_episode(self) -> int | None:
        return self.learner.pending.data.episode if self.learner.pending else None


def next_update(learner: Learner, last_training: Mapping[str, Any]) -> NextUpdate | None:
    """The update that should begin now; `last_training` is the payload of the newest conclusion."""
    seen = last_training.get("contexts")
    return learner.next_update(None if seen is None else ContextCounts(**seen))


def training_event(experiment_id: str, offset: int, update: NextUpdate) -> NewEvent:
    """The event at which an update begins that no full episode began, decided by the log up to `offset`."""
    payload = {"cause": update.cause.value, "covers": update.covers}
    key = f"{experiment_id}/{offset}"  # no key of a request: those have a colon there
    return NewEvent(experiment_id, EventKind.TRAINING, key, payload=json.dumps(payload).encode())


def conclusion(
    experiment_id: str,
    outcome: Outcome,
    gate: GateRule = GateRule.AUTO,
    contexts: ContextCounts | None = None,
) -> NewEvent:
    """The event that ends an encoder update: an activation, a refusal or a candidate.

    `contexts`: how many had come when the update began.
    """
    kind = EventKind.ACTIVATION if gate is GateRule.AUTO else EventKind.CANDIDATE
    if not outcome.verdict.is_accepted:
        kind = EventKind.REFUSAL
    payload: dict[str, Any] = {
        "episode": outcome.episode,
        "verdict": outcome.verdict.as_dict(),
        "losses": outcome.losses,
    }
    if contexts is not None:
        payload["contexts"] = asdict(contexts)
    key = f"{experiment_id}:{outcome.episode}"
    return NewEvent(experiment_id, kind, key, payload=json.dumps(payload, default=str).encode())


def refold_event(
    experiment_id: str, spec: ExperimentSpec, reasons: Sequence[str], version: int
) -> NewEvent:
    """The event of a new fold from the beginning of the log, with its configuration.

    `version` is the abandoned snapshot; appending the event twice changes nothing.
    """
    payload = {
        "reasons": list(reasons),
        "version": version,
        "recipe": RECIPE.version if spec.lost else spec.recipe,
        "recipe_before": spec.recipe,
        "config": json.loads(spec.bandit_config().to_json()),
    }
    key = f"{experiment_id}:{version}"
    return NewEvent(experiment_id, EventKind.REFOLD, key, payload=json.dumps(payload).encode())


def episode_of(event: StoredEvent) -> int:
    """The episode that an activation or a refusal ends."""
    return int(json.loads(event.payload)["episode"])


def fold_rounds(learner: Learner, spec: ExperimentSpec, events: Sequence[StoredEvent]) -> None:
    """Keep the contexts of the decisions and fold the rewards; they end at most one episode."""
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
