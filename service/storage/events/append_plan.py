"""What becomes of each appended event: pure rules, applied while the experiments are locked."""

import math
import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from service.errors import (
    DecisionArchived,
    ExperimentArchived,
    ExperimentPaused,
    InvalidRequest,
    RequestConflict,
    RewardConflict,
    ServiceError,
    StaleEpoch,
    TargetRewardForbidden,
    UnknownDecision,
    UnknownExperiment,
)
from service.records import (
    Appended,
    Domain,
    EventKind,
    NewEvent,
    Phase,
    Status,
    StoredEvent,
)

Key = tuple[EventKind, str]
RequestKey = tuple[str, str]  # experiment id, request id
Decisions = dict[Domain | None, StoredEvent]

ROUNDS = (EventKind.DECISION, EventKind.REWARD)  # what is archived of a log; all else stays

# What new decisions are refused with, by the status of their experiment.
REFUSALS: Mapping[Status, type[ServiceError]] = {
    Status.PAUSED: ExperimentPaused,
    Status.ARCHIVED: ExperimentArchived,
    Status.DELETED: UnknownExperiment,
}


class LookedUp(NamedTuple):
    """The archived rounds that a call repeats or refers to, among those up to an offset."""

    up_to: int = 0
    events: tuple[StoredEvent, ...] = ()


# For ids that were just made: no archived round has them.
JUST_MADE = LookedUp(sys.maxsize)


class ArchiveNeeded(NamedTuple):
    """Nothing was written: the call may refer to archived rounds up to this offset."""

    up_to: int


Outcome = list[Appended] | ServiceError | ArchiveNeeded


class AppendCall(NamedTuple):
    """The events of one caller: all of one experiment, all or none written.

    With an `epoch`, they are refused once another trainer has taken the experiment over. Decisions that
    their callers have already (`is_answered`) are written whatever the experiment's status is by now.
    """

    events: tuple[NewEvent, ...]
    epoch: int | None = None
    is_answered: bool = False
    looked_up: LookedUp = LookedUp()

    @property
    def experiment_id(self) -> str:
        """The experiment that all events belong to."""
        return self.events[0].experiment_id

    @property
    def has_new_decisions(self) -> bool:
        """Whether all events are decisions with ids that were just made, which no log can hold."""
        return all(
            event.kind is EventKind.DECISION and event.has_new_key and event.has_new_request
            for event in self.events
        )

    def repeated(self) -> "AppendCall":
        """The same to be written again: its events may be in the log by now, so they are looked up."""
        events = (replace(each, has_new_key=False, has_new_request=False) for each in self.events)
        return self._replace(events=tuple(events))


def have_written(outcomes: Iterable[Outcome]) -> bool:
    """Whether any event is new."""
    return any(
        isinstance(outcome, list) and any(each.created for each in outcome) for outcome in outcomes
    )


@dataclass(slots=True)
class LockedExperiment:
    """The part of an experiment's row that the rules look at, and that accepted calls change."""

    experiment_id: str
    phase: Phase
    status: Status
    head_offset: int
    epoch: int
    archived_offset: int = 0


class _ArchiveNeededError(Exception):
    """The call must be made again with what the archive holds of it."""


class AppendPlan:
    """Takes calls one by one and collects what is to be written, gap-free.

    `stored` are the events that any call might repeat or refer to. A refused call leaves no
    trace; an accepted one is seen by the calls after it. `archived` are requests that the archive
    may hold. Files are not read here, under locks: a call that needs them is made again.
    """

    def __init__(
        self,
        experiments: Iterable[LockedExperiment],
        stored: Iterable[StoredEvent],
        now: datetime,
        archived: Collection[RequestKey] = (),
    ) -> None:
        self.now = now
        self.archived_requests = archived
        self.new_events: list[StoredEvent] = []
        self.changed: dict[str, LockedExperiment] = {}
        self._experiments = {each.experiment_id: each for each in experiments}
        self.by_key: dict[Key, StoredEvent] = {}
        self.by_request: dict[RequestKey, Decisions] = {}
        self._remember(each for each in stored if not self._is_archived(each))

    def outcomes(self, calls: Iterable[AppendCall]) -> list[Outcome]:
        """For each call what it is answered or refused with, in their order."""
        return [self._outcome(call) for call in calls]

    def _outcome(self, call: AppendCall) -> Outcome:
        try:
            return self.add(call)
        except ServiceError as refusal:
            return refusal
        except _ArchiveNeededError:
            return ArchiveNeeded(self._experiments[call.experiment_id].archived_offset)

    def add(self, call: AppendCall) -> list[Appended]:
        """What the call is answered, one result an event; raises what it is refused with."""
        experiment = self._experiments.get(call.experiment_id)
        if experiment is None or experiment.status is Status.DELETED:
            raise UnknownExperiment
        if experiment.status is Status.ARCHIVED and call.epoch is None and not call.is_answered:
            raise ExperimentArchived
        if call.epoch is not None and call.epoch != experiment.epoch:
            raise StaleEpoch(epoch=call.epoch, current_epoch=experiment.epoch)
        self._remember(call.looked_up.events)
        draft = _Draft(self, experiment, call)
        results = [draft.append(event) for event in call.events]
        self._accept(draft)
        return results

    def _accept(self, draft: "_Draft") -> None:
        if not draft.new_events:
            return
        self._remember(draft.new_events)
        self.new_events.extend(draft.new_events)
        experiment = draft.experiment
        experiment.head_offset, experiment.phase = draft.head, draft.phase
        self.changed[experiment.experiment_id] = experiment

    def _is_archived(self, event: StoredEvent) -> bool:
        """Whether it is archived, and its row not deleted yet: a round is looked up in one place."""
        experiment = self._experiments.get(event.experiment_id)
        archived = 0 if experiment is None else experiment.archived_offset
        return event.offset <= archived and event.kind in ROUNDS

    def _remember(self, events: Iterable[StoredEvent]) -> None:
        for event in events:
            self.by_key[event.kind, event.event_key] = event
            if event.request_id is not None:
                request = (event.experiment_id, event.request_id)
                self.by_request.setdefault(request, {})[event.domain] = event


class _Draft:
    """One call's events, seen by one another but not yet by other calls."""

    def __init__(self, plan: AppendPlan, experiment: LockedExperiment, call: AppendCall) -> None:
        self.experiment = experiment
        self._call = call
        self.head = experiment.head_offset
        self.phase = experiment.phase
        self.new_events: list[StoredEvent] = []
        self._now = plan.now
        self._earlier_keys: Mapping[Key, StoredEvent] = plan.by_key
        self._own_keys: dict[Key, StoredEvent] = {}
        self._earlier_requests: Mapping[RequestKey, Decisions] = plan.by_request
        self._own_requests: dict[tuple[str | None, Domain | None], StoredEvent] = {}
        self._archived_requests = plan.archived_requests

    def append(self, event: NewEvent) -> Appended:
        match event.kind:
            case EventKind.DECISION:
                return self._decision(event)
            case EventKind.REWARD:
                return self._reward(event)
            case _:
                return self._other(event)

    def _decision(self, event: NewEvent) -> Appended:
        stored = self._same_request(event) or self._same_key(event)
        if stored is not None:
            return Appended(stored, created=False)
        if not event.has_new_key:
            self._look_up()
        _check_status(self._call, self.experiment)
        return self._create(event)

    def _same_request(self, event: NewEvent) -> StoredEvent | None:
        if event.request_id is None:
            return None
        earlier = self._earlier_requests.get((event.experiment_id, event.request_id))
        if earlier is None:
            own = self._own_requests.get((event.request_id, event.domain))
            if own is None and (event.experiment_id, event.request_id) in self._archived_requests:
                self._look_up()
            return None if own is None else _same_hash(own, event)
        # The decisions of a request are written together: a side that is missing then was
        # not in the first body.
        if event.domain not in earlier:
            raise RequestConflict
        return _same_hash(earlier[event.domain], event)

    def _same_key(self, event: NewEvent) -> StoredEvent | None:
        stored = self._find(event.kind, event.event_key)
        if stored is None:
            return None
        if stored.experiment_id != event.experiment_id or stored.request_id != event.request_id:
            raise RequestConflict
        return _same_hash(stored, event)

    def _find(self, kind: EventKind, key: str) -> StoredEvent | None:
        return self._own_keys.get((kind, key)) or self._earlier_keys.get((kind, key))

    def _reward(self, event: NewEvent) -> Appended:
        if event.reward is None or not math.isfinite(event.reward):
            raise InvalidRequest("A reward is a finite number.")
        decision = self._find(EventKind.DECISION, event.event_key)
        if decision is None:
            self._look_up()
        if decision is None or decision.experiment_id != event.experiment_id:
            raise UnknownDecision
        if decision.domain is Domain.TARGET and self.phase is Phase.ZERO_SHOT:
            raise TargetRewardForbidden
        stored = self._find(EventKind.REWARD, event.event_key)
        if stored is None:
            if decision.offset <= self.experiment.archived_offset:
                raise DecisionArchived
            return self._create(_with_facts_of(decision, event))
        if stored.reward != event.reward:
            raise RewardConflict
        return Appended(stored, created=False)

    def _other(self, event: NewEvent) -> Appended:
        stored = self._same_key(event)
        if stored is not None:
            return Appended(stored, created=False)
        if event.kind is EventKind.PHASE:
            self.phase = Phase.CONTINUED
        return self._create(event)

    def _look_up(self) -> None:
        """Ask for the archive, unless it was looked up as far as it reaches."""
        if self._call.looked_up.up_to < self.experiment.archived_offset:
            raise _ArchiveNeededError

    def _create(self, event: NewEvent) -> Appended:
        self.head += 1
        stored = numbered(event, self.head, self._now)
        self.new_events.append(stored)
        self._own_keys[stored.kind, stored.event_key] = stored
        self._own_requests[stored.request_id, stored.domain] = stored
        return Appended(stored, created=True)


def _check_status(call: AppendCall, experiment: LockedExperiment) -> None:
    """Refuse new decisions that the experiment does not take, unless their callers have them."""
    refusal = REFUSALS.get(experiment.status)
    if refusal is not None and not call.is_answered:
        raise refusal


def _same_hash(stored: StoredEvent, event: NewEvent) -> StoredEvent:
    if stored.request_hash != event.request_hash:
        raise RequestConflict
    return stored


def _with_facts_of(decision: StoredEvent, reward: NewEvent) -> NewEvent:
    return replace(
        reward,
        domain=decision.domain,
        arm=decision.arm,
        policy_version=decision.policy_version,
    )


def numbered(event: NewEvent, offset: int, now: datetime) -> StoredEvent:
    """The event as the log holds it at this offset."""
    return StoredEvent(
        experiment_id=event.experiment_id,
        offset=offset,
        kind=event.kind,
        event_key=event.event_key,
        payload=event.payload,
        context=event.context,
        request_id=event.request_id,
        request_hash=event.request_hash,
        domain=event.domain,
        arm=event.arm,
        reward=event.reward,
        policy_version=event.policy_version,
        created_at=now,
    )
