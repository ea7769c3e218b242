"""One select: score under one policy, write all decisions at once, answer what the log holds."""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from model.rounds import Booleans, Selection
from model.selection import entropy
from service.decision_codec import (
    DecisionOrigin,
    Side,
    context_bytes,
    decision_answer,
    decision_event,
    narrowed,
)
from service.errors import InvalidRequest
from service.metrics import Metrics
from service.policies import Served
from service.recent_decisions import RecentDecisions
from service.records import Appended, Domain, uuid7
from service.scorer import Scorer
from service.storage.event_log import EventLog

Group = tuple[Domain, int]  # what can be scored together: a domain, and an arm count


@dataclass(frozen=True, slots=True)
class Round:
    """One round to decide: its sides are written together or not at all."""

    request_id: str
    sides: tuple[Side, ...]

    def digest(self) -> str:
        """Equal for equal rounds, however they were sent."""
        digest = hashlib.sha256()
        for side in self.sides:
            arms = "".join(f"{len(arm)}:{arm}" for arm in side.arms)
            head = f"{side.domain}|{len(side.arms)}|{arms}|{side.contexts.size}|"
            digest.update(head.encode())
            digest.update(context_bytes(side.contexts))
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer to a round; `is_replay` when it had been answered before."""

    body: dict[str, Any]
    is_replay: bool


@dataclass(frozen=True, slots=True)
class _Draft:
    """A decision on its way: who asked, which side of a round, and its id."""

    origin: DecisionOrigin
    side: Side
    decision_id: str


class Selecting:
    """Decides rounds. The one thing it waits for is a durable write."""

    def __init__(
        self,
        scorer: Scorer,
        event_log: EventLog,
        recent: RecentDecisions,
        metrics: Metrics,
        new_id: Callable[[], str] = uuid7,
    ) -> None:
        self._scorer = scorer
        self._event_log = event_log
        self._recent = recent
        self._metrics = metrics
        self._new_id = new_id

    async def select(self, served: Served, rounds: Sequence[Round]) -> list[Answered]:
        """The answers to the rounds, all under one policy; all are written or none."""
        drafts = [draft for round_ in rounds for draft in self._drafts(served, round_)]
        selections = await self._score(served, drafts)
        events = [
            decision_event(draft.origin, draft.side, draft.decision_id, selection)
            for draft, selection in zip(drafts, selections, strict=True)
        ]
        appended = await self._event_log.append(events)
        self._count(served.experiment.name, appended, selections)
        left = iter(appended)
        return [
            self._answer(served, round_, [next(left) for _ in round_.sides]) for round_ in rounds
        ]

    def _drafts(self, served: Served, round_: Round) -> list[_Draft]:
        version = served.policy.version
        origin = DecisionOrigin(
            experiment_id=served.experiment.experiment_id,
            request_id=round_.request_id,
            request_hash=round_.digest(),
            policy_version=version.version,
            encoder_version=version.encoder_version,
        )
        return [_Draft(origin, side, self._new_id()) for side in round_.sides]

    async def _score(self, served: Served, drafts: Sequence[_Draft]) -> list[Selection]:
        """For each draft a selection of one row, whose columns are its side's arms."""
        groups: defaultdict[Group, list[int]] = defaultdict(list)
        for index, draft in enumerate(drafts):
            arm_count = len(draft.side.arms) if served.spec.is_per_arm else 0
            groups[draft.side.domain, arm_count].append(index)
        scored = await asyncio.gather(
            *(self._score_group(served, [drafts[i] for i in some]) for some in groups.values())
        )
        found: dict[int, Selection] = {}
        for some, selections in zip(groups.values(), scored, strict=True):
            found.update(zip(some, selections, strict=True))
        return [found[index] for index in range(len(drafts))]

    async def _score_group(self, served: Served, drafts: Sequence[_Draft]) -> list[Selection]:
        contexts = np.stack([draft.side.contexts for draft in drafts])
        ids = [draft.decision_id for draft in drafts]
        domain = drafts[0].side.domain
        eligible = None if served.spec.is_per_arm else _eligible(served, drafts)
        try:
            selection = await self._scorer.select(served.policy, domain, contexts, ids, eligible)
        except ValueError as error:
            raise InvalidRequest("The model refuses the contexts.") from error
        return [
            narrowed(selection, row, _columns(served, draft)) for row, draft in enumerate(drafts)
        ]

    def _count(
        self, experiment: str, appended: Sequence[Appended], selections: Sequence[Selection]
    ) -> None:
        for each, selection in zip(appended, selections, strict=True):
            if each.created and each.event.domain is not None:
                spread = entropy(selection.probabilities[0])
                self._metrics.count_decision(experiment, each.event.domain, spread)

    def _answer(self, served: Served, round_: Round, appended: Sequence[Appended]) -> Answered:
        name = served.experiment.name
        for each in appended:
            self._recent.add(each.event, name)
        body: dict[str, Any] = {
            "experiment": name,
            "request_id": round_.request_id,
            "policy_version": appended[0].event.policy_version,
        }
        body |= {str(each.event.domain): decision_answer(each.event) for each in appended}
        return Answered(body, is_replay=not any(each.created for each in appended))


def _columns(served: Served, draft: _Draft) -> list[int]:
    if served.spec.is_per_arm or draft.side.arms is served.spec.arms:
        return list(range(len(draft.side.arms)))
    return [served.spec.arm_indexes[arm] for arm in draft.side.arms]


def _eligible(served: Served, drafts: Sequence[_Draft]) -> Booleans | None:
    arm_count = len(served.spec.arms)
    if all(len(draft.side.arms) == arm_count for draft in drafts):
        return None
    mask = np.zeros((len(drafts), arm_count), dtype=np.bool_)
    for row, draft in enumerate(drafts):
        mask[row, _columns(served, draft)] = True
    return mask
