"""A decision of the log, derived again from its policy version, its stored context and its id."""

import asyncio
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from service.codec.decisions import Chosen, DecisionPayload, Side, is_same, payload_of
from service.deciding.policies import Policies, Served, initial_policy
from service.deciding.select import Selecting
from service.deciding.versions import Versions
from service.errors import DamagedSnapshot, UnknownSnapshot
from service.records import Domain, StoredEvent

IMPORTED = "It was imported: the policy that chose is not known here."
PRUNED = "The snapshot of version {} was pruned, so its policy cannot be restored."
DAMAGED = "The snapshot of version {} is damaged, so its policy cannot be restored."


class Derivation(NamedTuple):
    """What is chosen again, or the problem that prevents it."""

    chosen: Chosen | None
    is_equal: bool | None
    largest_difference: float | None
    problem: str | None


@dataclass(frozen=True, slots=True)
class Deriving:
    """Derives decisions again."""

    policies: Policies
    versions: Versions
    selecting: Selecting

    async def derive(self, experiment: str, event: StoredEvent) -> Derivation:
        """The derivation of a decision that was read with its context."""
        version, payload = event.policy_version, payload_of(event)
        if version is None or payload.encoder_version < 0:
            return _without(IMPORTED)
        try:
            served = await self._policy(experiment, version)
        except UnknownSnapshot:
            return _without(PRUNED.format(version))
        except DamagedSnapshot:
            return _without(DAMAGED.format(version))
        side = Side(event.domain or Domain.SOURCE, payload.arms, event.context or b"")
        chosen = await self.selecting.decide_again(served, side, event.event_key)
        difference = _largest_difference(payload, chosen.payload)
        return Derivation(chosen, is_same(event, chosen), difference, None)

    async def _policy(self, experiment: str, version: int) -> Served:
        current = await self.policies.current(experiment)
        if version or not current.version:
            return await self.versions.served(current, version)
        first = await asyncio.to_thread(initial_policy, current.spec, "cpu")
        return replace(current, policy=first)


def _without(problem: str) -> Derivation:
    return Derivation(None, None, None, problem)


def _largest_difference(logged: DecisionPayload, derived: DecisionPayload) -> float:
    """Of any probability, mean or bonus."""
    differences = (
        np.abs(np.subtract(getattr(logged, name), getattr(derived, name))).max()
        for name in ("probabilities", "mean", "bonus")
    )
    return float(max(differences))
