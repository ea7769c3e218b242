"""Rewards: find the decision's experiment, write the reward, wake the trainer."""

import asyncio
from collections.abc import Iterable, Sequence

from service.auth.tenants import TenantScope
from service.bus.bus import SnapshotBus
from service.deciding.select import Owner, RecentDecisions
from service.errors import (
    ServiceError,
    TargetRewardForbidden,
    Unavailable,
    UnknownDecision,
    UnknownExperiment,
)
from service.metrics import Metrics
from service.records import Appended, EventKind, NewEvent
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments

Reported = tuple[str, float]  # decision id, reward
Outcome = Appended | ServiceError


class Rewarding:
    """Writes rewards; repeated requests write a reward once."""

    def __init__(
        self,
        experiments: Experiments,
        event_log: EventLog,
        bus: SnapshotBus,
        recent: RecentDecisions,
        metrics: Metrics,
    ) -> None:
        self._experiments = experiments
        self._event_log = event_log
        self._bus = bus
        self._recent = recent
        self._metrics = metrics
        self._names: dict[str, str] = {}

    async def reward(self, decision_id: str, reward: float, tenant_scope: TenantScope) -> Appended:
        """The stored reward; raises a `ServiceError` if it is refused."""
        owner = (await self._owners([decision_id], tenant_scope)).get(decision_id)
        if owner is None:
            raise UnknownDecision
        return await self._append(owner, decision_id, reward)

    async def reward_many(
        self, reported: Sequence[Reported], tenant_scope: TenantScope
    ) -> list[Outcome]:
        """The stored reward or the refusal of each, independently of the others.

        Raises `Unavailable` if any could not be written: all can be sent again.
        """
        owners = await self._owners((decision_id for decision_id, _ in reported), tenant_scope)
        outcomes = await asyncio.gather(
            *(self._outcome(owners.get(decision_id), decision_id, r) for decision_id, r in reported)
        )
        for outcome in outcomes:
            if isinstance(outcome, Unavailable):
                raise outcome
        return list(outcomes)

    async def _outcome(self, owner: Owner | None, decision_id: str, reward: float) -> Outcome:
        if owner is None:
            return UnknownDecision()
        try:
            return await self._append(owner, decision_id, reward)
        except ServiceError as refusal:
            return refusal

    async def _append(self, owner: Owner, decision_id: str, reward: float) -> Appended:
        event = NewEvent(owner.experiment_id, EventKind.REWARD, decision_id, reward=reward)
        try:
            (appended,) = await self._event_log.append([event])
        except UnknownExperiment:
            raise UnknownDecision from None  # the experiment was deleted
        except TargetRewardForbidden:
            self._metrics.count_refused_target_reward(owner.experiment)
            raise
        if appended.created:
            self._bus.wake(owner.experiment)
            self._metrics.count_reward(owner.experiment, str(appended.event.domain), reward)
        return appended

    async def _owners(
        self, decision_ids: Iterable[str], tenant_scope: TenantScope
    ) -> dict[str, Owner]:
        """The experiments of the decisions that exist in the tenant scope."""
        found: dict[str, Owner] = {}
        missing: set[str] = set()
        for decision_id in decision_ids:
            owner = self._recent.owner(decision_id)
            if owner is None:
                missing.add(decision_id)
            else:
                found[decision_id] = owner
        if missing:
            stored = await self._event_log.find_decisions(sorted(missing))
            for decision_id, decision in stored.items():
                name = await self._name(decision.experiment_id)
                if name is not None:
                    found[decision_id] = Owner(decision.experiment_id, name)
        return {key: owner for key, owner in found.items() if tenant_scope.holds(owner.experiment)}

    async def _name(self, experiment_id: str) -> str | None:
        """The full name of an experiment; None if it was deleted."""
        if experiment_id not in self._names:
            try:
                experiment = await self._experiments.get_by_id(experiment_id)
            except UnknownExperiment:
                return None
            self._names[experiment_id] = experiment.name
        return self._names[experiment_id]
