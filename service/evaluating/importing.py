"""Imports foreign logs as experiments: a log with propensities is folded like our own."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from service.auth.tenants import TenantScope
from service.codec.decisions import DecisionPayload
from service.errors import ExperimentExists
from service.evaluating.experiment_log import IMPORTED
from service.experiment_spec import ExperimentSpec
from service.formats.records import LoggedDecision
from service.records import (
    Actor,
    Domain,
    EventKind,
    Experiment,
    NewEvent,
    check_identifier,
)
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments

EVENTS = 512  # in one append


@dataclass(frozen=True, slots=True)
class Imported:
    """The counts of an import, including events that were already there.

    Rewards of target decisions are left out: a new experiment is in the zero-shot phase.
    """

    decisions: int
    rewards: int
    left_out: int


async def import_log(
    experiments: Experiments,
    event_log: EventLog,
    tenant_scope: TenantScope,
    spec: ExperimentSpec,
    decisions: Iterable[LoggedDecision],
) -> Imported:
    """Write decisions and their rewards to the log of a new experiment, or of an identical one.

    An event key combines the experiment's id and the decision's id, so that an interrupted import can be
    run again without writing events twice.
    """
    spec.check()
    name = tenant_scope.new_full_name(spec.name)
    experiment = await created_or_same(experiments, name, spec)
    count = rewards = left_out = 0
    remaining = iter(decisions)
    while some := list(islice(remaining, EVENTS // 2)):
        await event_log.append([*_events(experiment, some)])
        count += len(some)
        rewards += sum(_is_rewarded(each) for each in some)
        left_out += sum(each.reward is not None and not _is_rewarded(each) for each in some)
    return Imported(count, rewards, left_out)


async def created_or_same(
    experiments: Experiments, name: str, spec: ExperimentSpec, actor: Actor | None = None
) -> Experiment:
    """A new experiment, or the one that an interrupted attempt created with the same declaration."""
    try:
        return await experiments.create(name, **spec.row(), actor=actor)
    except ExperimentExists:
        found = await experiments.get(name)
        if json.loads(found.spec) != json.loads(spec.to_json()):
            raise
        return found


def _events(experiment: Experiment, decisions: Iterable[LoggedDecision]) -> Iterator[NewEvent]:
    for decision in decisions:
        check_identifier(decision.decision_id, "#/decision_id")
        key = f"{experiment.experiment_id}:{decision.decision_id}"
        payload = DecisionPayload(
            decision.arms,
            decision.probabilities or only_chosen(decision.arms, decision.arm, decision.propensity),
            (0.0,) * len(decision.arms),
            (0.0,) * len(decision.arms),
            IMPORTED,
        )
        made = NewEvent(
            experiment.experiment_id,
            EventKind.DECISION,
            key,
            payload=msgspec.json.encode(payload),
            context=decision.context,
            domain=decision.domain,
            arm=decision.arm,
            policy_version=decision.policy_version,
        )
        yield from with_reward(made, decision.reward if _is_rewarded(decision) else None)


def with_reward(decision: NewEvent, reward: float | None) -> Iterator[NewEvent]:
    """A decision's event, and that of its reward if there is one."""
    yield decision
    if reward is not None:
        yield NewEvent(decision.experiment_id, EventKind.REWARD, decision.event_key, reward=reward)


def _is_rewarded(decision: LoggedDecision) -> bool:
    return decision.reward is not None and decision.domain is Domain.SOURCE


def only_chosen(arms: Sequence[str], chosen: str, propensity: float | None) -> tuple[float, ...]:
    """The propensity of the chosen arm, 0 elsewhere; a sum other than 1 marks the rest as unknown.

    Nothing if the propensity itself is unknown.
    """
    if propensity is None:
        return ()
    return tuple(propensity if arm == chosen else 0.0 for arm in arms)
