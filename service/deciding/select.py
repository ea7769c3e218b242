"""One select: score under one policy, write all decisions at once, answer what the log holds."""

import asyncio
import hashlib
import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from msgspec import Raw, Struct

from model import Booleans
from service.codec.decisions import (
    CONTEXT_TYPE,
    Chosen,
    DecisionAnswer,
    DecisionOrigin,
    Side,
    chosen_arms,
    contexts_of,
    decision_answer,
    decision_event,
    stored_answer,
)
from service.deciding.policies import Served
from service.deciding.reward import Owner, RecentDecisions
from service.deciding.scorer import Scorer
from service.errors import ServiceError, UnknownExperiment
from service.metrics import Metrics
from service.ops import tracing
from service.records import Appended, Domain, NewEvent, uuid7s
from service.storage.events.append_plan import REFUSALS
from service.storage.events.log import EventLog

log = logging.getLogger(__name__)

MANY = 128  # rounds: the time of fewer is filled by other requests
SLICE = 32  # rounds that others wait for

_encode = msgspec.json.Encoder().encode

Group = tuple[Domain, int]  # what can be scored together: a domain, and an arm count


class Round(Struct, frozen=True, gc=False):
    """One round to decide: its sides are written together or not at all.

    `is_new` if its id was made here, and so is in no log.
    """

    request_id: str
    sides: tuple[Side, ...]
    is_new: bool = False

    def digest(self) -> str:
        """Equal for equal rounds, however they were sent."""
        digest = hashlib.sha256()
        for side in self.sides:
            named = "".join([f"{len(arm)}:{arm}" for arm in side.arms])
            size = len(side.content) // CONTEXT_TYPE.itemsize
            digest.update(f"{side.domain}|{len(side.arms)}|{named}|{size}|".encode())
            digest.update(side.content)
        return digest.hexdigest()


class Answered(Struct, frozen=True, gc=False):
    """The answer to a round, written or to be written as JSON; `is_replay` when it had been answered before."""

    body: dict[str, Any] | Raw
    is_replay: bool


class _Draft(Struct, frozen=True, gc=False):
    """A decision on its way: who asked, which side of a round, and its id."""

    origin: DecisionOrigin
    side: Side
    decision_id: str


class _Decided(Struct, frozen=True, gc=False):
    """A decision as it is answered; with the entropy of its choice if it is new."""

    domain: Domain
    answer: DecisionAnswer
    policy_version: int
    spread: float | None = None


class Selecting:
    """Decides rounds. The one thing it waits for is a durable write.

    A relaxed experiment does not wait even for that, unless the caller named the request, for only
    the log knows whether it was answered before, or as many decisions as may be are not written yet.
    """

    def __init__(
        self,
        scorer: Scorer,
        event_log: EventLog,
        recent: RecentDecisions,
        metrics: Metrics,
    ) -> None:
        self._scorer = scorer
        self._event_log = event_log
        self._recent = recent
        self._metrics = metrics

    async def select(self, served: Served, rounds: Sequence[Round]) -> list[Answered]:
        """The answers to the rounds, all under one policy; all are written or none."""
        drafts = _drafts(served, rounds)
        with tracing.span("score", decisions=len(drafts)):
            chosen = await self._score(served, drafts)
        events = [
            decision_event(draft.origin, draft.side, draft.decision_id, each)
            for draft, each in zip(drafts, chosen, strict=True)
        ]
        if all(round_.is_new for round_ in rounds):
            if served.spec.is_relaxed and self._event_log.can_append_later(len(events)):
                self._append_later(served, events)
            elif len(rounds) >= MANY:
                return await self._answer_meanwhile(served, rounds, drafts, chosen, events)
            else:
                await self._event_log.append(events, wants_stored=False)
            decided = [_new(served, *each) for each in zip(drafts, chosen, strict=True)]
        else:
            appended = await self._event_log.append(events)
            made = zip(appended, drafts, chosen, strict=True)
            decided = [_decided(served, *each) for each in made]
        self._remember(served, decided)
        self._count(served, decided)
        return _answers(served, rounds, decided)

    async def _answer_meanwhile(
        self,
        served: Served,
        rounds: Sequence[Round],
        drafts: Sequence[_Draft],
        chosen: Sequence[Chosen],
        events: Sequence[NewEvent],
    ) -> list[Answered]:
        """The answers, once written: under new ids they are known before, and made while the database works."""
        is_sent = asyncio.Event()
        written = asyncio.create_task(
            self._event_log.append(events, on_sent=is_sent.set, wants_stored=False)
        )
        written.add_done_callback(lambda _: is_sent.set())  # or it never came so far
        made = map(partial(_new, served), drafts, chosen)
        decided: list[_Decided] = []
        answers: list[Answered] = []
        try:
            await is_sent.wait()
            for start in range(0, len(rounds), SLICE):
                some = rounds[start : start + SLICE]
                new = list(islice(made, sum(len(round_.sides) for round_ in some)))
                answers += map(_encoded, _answers(served, some, new))
                decided += new
                await asyncio.sleep(0)  # others have their turn
            self._remember(served, decided)  # should it fail, the log still holds none of them
            await written
        finally:
            written.cancel()  # if nobody is there to be answered any more
        self._count(served, decided)
        return answers

    def _append_later(self, served: Served, events: Sequence[NewEvent]) -> None:
        refusal = REFUSALS.get(served.experiment.status)
        if refusal is not None:
            raise refusal
        name = served.experiment.name

        def note_loss(error: ServiceError) -> None:
            if isinstance(error, UnknownExperiment):
                return  # it was deleted, and its decisions are erased with it
            self._metrics.count_lost_decisions(name, len(events))
            details = {"action": "decisions_lost", "experiment": name, "problem": error.slug}
            log.error("decisions were answered and could not be written", extra=details)

        self._event_log.append_later(events, note_loss)

    async def _score(self, served: Served, drafts: Sequence[_Draft]) -> list[Chosen]:
        """What is chosen for each draft."""
        groups: defaultdict[Group, list[int]] = defaultdict(list)
        is_per_arm = served.spec.is_per_arm
        for index, draft in enumerate(drafts):
            groups[draft.side.domain, len(draft.side.arms) if is_per_arm else 0].append(index)
        if len(groups) == 1:
            return await self._score_group(served, drafts)
        scored = await asyncio.gather(
            *(self._score_group(served, [drafts[i] for i in some]) for some in groups.values())
        )
        found: dict[int, Chosen] = {}
        for some, chosen in zip(groups.values(), scored, strict=True):
            found.update(zip(some, chosen, strict=True))
        return [found[index] for index in range(len(drafts))]

    async def _score_group(self, served: Served, drafts: Sequence[_Draft]) -> list[Chosen]:
        sides = [draft.side for draft in drafts]
        contexts = contexts_of(sides, served.spec)
        ids = [draft.decision_id for draft in drafts]
        columns = [_columns(served, side) for side in sides]
        eligible = _eligible(served, columns)
        selection = await self._scorer.select(
            served.policy, sides[0].domain, contexts, ids, eligible
        )
        return chosen_arms(selection, sides, columns, served.policy.version.encoder_version)

    def _remember(self, served: Served, decided: Sequence[_Decided]) -> None:
        """Whose decisions these are, for their rewards."""
        owner = Owner(served.experiment.experiment_id, served.experiment.name)
        self._recent.add([each.answer.decision_id for each in decided], owner)

    def _count(self, served: Served, decided: Sequence[_Decided]) -> None:
        """The new ones."""
        spreads: defaultdict[Domain, list[float]] = defaultdict(list)
        for each in decided:
            if each.spread is not None:
                spreads[each.domain].append(each.spread)
        for domain, some in spreads.items():
            self._metrics.count_decisions(served.experiment.name, domain, len(some), sum(some))


def _drafts(served: Served, rounds: Sequence[Round]) -> list[_Draft]:
    """The decisions to make, in the order of the rounds and of their sides."""
    experiment_id, version = served.experiment.experiment_id, served.policy.version.version
    asked: list[tuple[DecisionOrigin, Side]] = []
    for round_ in rounds:
        origin = DecisionOrigin(
            experiment_id, round_.request_id, round_.digest(), version, round_.is_new
        )
        asked += [(origin, side) for side in round_.sides]
    return [
        _Draft(origin, side, decision_id)
        for (origin, side), decision_id in zip(asked, uuid7s(len(asked)), strict=True)
    ]


def _answers(
    served: Served, rounds: Sequence[Round], decided: Sequence[_Decided]
) -> list[Answered]:
    sides = iter(decided)
    return [_answered(served, round_, list(islice(sides, len(round_.sides)))) for round_ in rounds]


def _encoded(answered: Answered) -> Answered:
    return Answered(Raw(_encode(answered.body)), answered.is_replay)


def _answered(served: Served, round_: Round, decided: Sequence[_Decided]) -> Answered:
    body: dict[str, Any] = {
        "experiment": served.spec.name,
        "request_id": round_.request_id,
        "policy_version": decided[0].policy_version,
    }
    is_replay = True
    for each in decided:
        body[each.domain._value_] = each.answer  # which `value` looks up in Python
        is_replay = is_replay and each.spread is None
    return Answered(body, is_replay)


def _new(served: Served, draft: _Draft, chosen: Chosen) -> _Decided:
    answer = decision_answer(draft.decision_id, chosen.arm, chosen.payload)
    policy_version = draft.origin.policy_version
    return _Decided(draft.side.domain, answer, policy_version, chosen.entropy)


def _decided(served: Served, appended: Appended, draft: _Draft, chosen: Chosen) -> _Decided:
    event, created = appended
    if created:  # under the id that was made for it
        return _new(served, draft, chosen)
    assert event.domain is not None and event.policy_version is not None  # noqa: S101, PT018
    return _Decided(event.domain, stored_answer(event), event.policy_version)


def _columns(served: Served, side: Side) -> list[int] | None:
    """The policy's columns of the side's arms; none if they are all of its columns in order."""
    if served.spec.is_per_arm or side.arms == served.spec.arms:
        return None
    return [served.spec.arm_indexes[arm] for arm in side.arms]


def _eligible(served: Served, columns: Sequence[list[int] | None]) -> Booleans | None:
    if not any(columns):
        return None
    mask = np.zeros((len(columns), len(served.spec.arms)), dtype=np.bool_)
    for row, some in enumerate(columns):
        mask[row, slice(None) if some is None else some] = True
    return mask
