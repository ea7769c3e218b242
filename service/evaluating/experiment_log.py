"""An experiment's log as decisions with their rewards, page by page."""

from collections.abc import AsyncIterator

import numpy as np
from msgspec import UNSET

from model import Floats
from service.codec.context_sets import StoredSet, completed, part_contexts
from service.codec.decisions import payload_of
from service.experiment_spec import ExperimentSpec
from service.formats.records import LoggedDecision, LogHeader
from service.records import CONTEXT_TYPE, Domain, EventKind, Experiment, StoredEvent
from service.storage.events.log import EventLog

PAGE = 2048
IMPORTED = -1  # the encoder version of imported decisions


def header_of(spec: ExperimentSpec) -> LogHeader:
    """The header of an experiment's log."""
    return LogHeader(
        arms=spec.arms,
        context_kind=spec.context_kind,
        context_shape=spec.context_shape,
        columns=UNSET if spec.table is None else spec.table.columns,
        resize=UNSET if spec.image is None else spec.image.resize,
    )


async def weight_bound(experiment: Experiment, event_log: EventLog) -> float | None:
    """The largest weight that any policy can have on this log, K/ε; None without a bound.

    Imported rounds have none, because their propensities are arbitrary.
    """
    if await is_imported(experiment, event_log):
        return None
    spec = ExperimentSpec.of(experiment)
    epsilon = spec.bandit_config().epsilon
    return len(spec.arms) / epsilon if spec.arms and epsilon > 0 else None


async def is_imported(experiment: Experiment, event_log: EventLog) -> bool:
    """Whether rounds were imported: a history, or a foreign log, by its first decision."""
    if await event_log.has_history(experiment.experiment_id):
        return True
    first = await event_log.read(experiment.experiment_id, 0, 1)
    if not first or first[0].kind is not EventKind.DECISION:
        return False
    return payload_of(first[0]).encoder_version == IMPORTED


Page = list[tuple[int, LoggedDecision]]


async def decisions_of(
    experiment: Experiment, event_log: EventLog, up_to: int, after: int = 0
) -> AsyncIterator[Page]:
    """Pages of (offset, decision), after < offset ≤ up_to, in order, each decision with its reward."""
    async for events in _events(experiment, event_log, up_to, after):
        yield await _decisions(events, event_log, experiment)


async def decisions_and_contexts_of(
    experiment: Experiment, event_log: EventLog, up_to: int, after: int = 0
) -> AsyncIterator[Page]:
    """The same with stored target contexts in order, as target decisions without a reward."""
    spec = ExperimentSpec.of(experiment)
    async for events in _events(experiment, event_log, up_to, after):
        first = 0
        for place, event in enumerate(events):
            if (contexts := completed(event)) is not None:
                yield await _decisions(events[first:place], event_log, experiment)
                first = place
                async for page in _stored_contexts(event, contexts, event_log, spec):
                    yield page
        yield await _decisions(events[first:], event_log, experiment)


async def _events(
    experiment: Experiment, event_log: EventLog, up_to: int, after: int
) -> AsyncIterator[list[StoredEvent]]:
    offset = after
    while offset < up_to:
        events = await event_log.read(experiment.experiment_id, offset, PAGE, up_to=up_to)
        if not events:
            return
        offset = events[-1].offset
        yield events


async def _decisions(
    events: list[StoredEvent], event_log: EventLog, experiment: Experiment
) -> Page:
    made = [each for each in events if each.kind is EventKind.DECISION]
    if not made:
        return []
    keys = [each.event_key for each in made]
    found = await event_log.find_rewards(experiment.experiment_id, keys)
    # Rewards that came since the experiment was looked up: how fast the log is read must not count.
    rewards = {key: each for key, each in found.items() if each.offset <= experiment.head_offset}
    return [(each.offset, logged(each, rewards.get(each.event_key))) for each in made]


async def _stored_contexts(
    event: StoredEvent, contexts: StoredSet, event_log: EventLog, spec: ExperimentSpec
) -> AsyncIterator[Page]:
    for number in range(contexts.parts):
        part = await event_log.contexts_part(event.experiment_id, contexts.request_id, number)
        yield [(event.offset, _unlabeled(context)) for context in part_contexts(part, spec)]


def _unlabeled(context: Floats) -> LoggedDecision:
    content = np.ascontiguousarray(context, dtype=CONTEXT_TYPE).tobytes()
    return LoggedDecision(
        decision_id="", arms=("",), arm="", propensity=None, context=content, domain=Domain.TARGET
    )


def logged(event: StoredEvent, reward: StoredEvent | None) -> LoggedDecision:
    """A stored decision in the form of log files."""
    payload = payload_of(event)
    arm = event.arm or ""
    is_past = payload.encoder_version == IMPORTED
    is_whole = not is_past or abs(sum(payload.probabilities) - 1.0) < 1e-3
    return LoggedDecision(
        decision_id=event.event_key,
        arms=payload.arms,
        arm=arm,
        propensity=payload.probability(arm),
        probabilities=payload.probabilities if is_whole else None,
        reward=None if reward is None else reward.reward,
        context=event.context or b"",
        domain=event.domain or Domain.SOURCE,
        policy_version=event.policy_version or 0,
        time=payload.time or event.created_at.isoformat(),
        extra={} if payload.row_id is None else {"id": payload.row_id},
    )
