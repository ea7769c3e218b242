"""One select: `decide` scores under one policy, `write` makes the decisions durable.

`decide` is a plain function and never waits. `write` waits for the log and answers what it holds.
"""

import asyncio
import hashlib
import logging
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from model import Booleans, Floats, Selection
from service.codec.decisions import (
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
from service.deciding.scorer import Scorer
from service.errors import ServiceError, UnknownExperiment
from service.metrics import Metrics
from service.ops import tracing
from service.records import CONTEXT_TYPE, Appended, Domain, NewEvent, StoredEvent, uuid7s
from service.storage.events.append_plan import REFUSALS
from service.storage.events.log import EventLog

MAX_RECENT = 65_536

log = logging.getLogger(__name__)


class Owner(NamedTuple):
    """The experiment that a decision belongs to."""

    experiment_id: str
    experiment: str


class RecentDecisions:
    """Remembers the newest decisions of this process; forgetting one costs a read, no more.

    All memory is taken at the start, a megabyte. A dictionary that forgets its oldest entry would
    hold 18 and be made anew again and again, each time leaving holes in the process's memory.
    Each id has one place, where a newer one may replace it, and is known by its hash of 64 bits;
    should two ever be equal, the log still refuses a reward for a decision that it does not hold.
    """

    def __init__(self, capacity: int = MAX_RECENT) -> None:
        self._hashes = array("q", bytes(8 * capacity))
        self._owners: list[Owner | None] = [None] * capacity
        self._shared: dict[Owner, Owner] = {}  # one object an experiment, not one a decision

    def add(self, decision_ids: Iterable[str], owner: Owner) -> None:
        """Remember decisions that were answered."""
        owner = self._shared.setdefault(owner, owner)
        hashes, owners = self._hashes, self._owners
        capacity = len(hashes)
        for decision_id in decision_ids:
            key = hash(decision_id)
            place = key % capacity
            hashes[place] = key
            owners[place] = owner

    def owner(self, decision_id: str) -> Owner | None:
        """Whose decision it is, none when it is not remembered."""
        key = hash(decision_id)
        place = key % len(self._hashes)
        return self._owners[place] if self._hashes[place] == key else None


class DecisionRequest(Struct, frozen=True, gc=False):
    """One round to decide: its sides are written together or not at all.

    `is_new` if its id was made here, and so is in no log.
    """

    request_id: str
    sides: tuple[Side, ...]
    is_new: bool = False

    def digest(self, prefixes: dict[tuple[str, ...], bytes]) -> str:
        """Equal for equal rounds, however they were sent; `prefixes` are those of the batch so far."""
        digest = hashlib.sha256()
        for side in self.sides:
            prefix = prefixes.get(side.arms)
            if prefix is None:
                named = "".join([f"{len(arm)}:{arm}" for arm in side.arms])
                prefix = prefixes[side.arms] = f"|{len(side.arms)}|{named}|".encode()
            size = len(side.content) // CONTEXT_TYPE.itemsize
            digest.update(b"%b%b%d|" % (side.domain.encode(), prefix, size))
            digest.update(side.content)
        return digest.hexdigest()


class Answered(Struct, frozen=True, gc=False):
    """The answer to a round; `is_replay` when it had been answered before."""

    body: dict[str, Any]
    is_replay: bool


class _Draft(Struct, frozen=True, gc=False):
    """A decision to make: its request, its side of the round, and its id."""

    origin: DecisionOrigin
    side: Side
    decision_id: str


class _Decided(Struct, frozen=True, gc=False):
    """A decision as it is answered; with the entropy of its choice if it is new."""

    domain: Domain
    answer: DecisionAnswer
    policy_version: int
    entropy: float | None = None


class Batch(NamedTuple):
    """Rounds that are decided under one policy and not written yet."""

    served: Served
    rounds: Sequence[DecisionRequest]
    drafts: Sequence[_Draft]
    chosen: Sequence[Chosen]

    @property
    def is_new(self) -> bool:
        """Whether no log can hold any of them."""
        return all(round_.is_new for round_ in self.rounds)

    def events(self) -> list[NewEvent]:
        """The decisions as events of the log."""
        return [
            decision_event(each.origin, each.side, each.decision_id, chosen)
            for each, chosen in zip(self.drafts, self.chosen, strict=True)
        ]

    def split(self) -> list["Batch"]:
        """The same as one batch for each round."""
        drafts, chosen = iter(self.drafts), iter(self.chosen)
        return [
            Batch(self.served, [each], list(islice(drafts, size)), list(islice(chosen, size)))
            for each in self.rounds
            for size in (len(each.sides),)
        ]


class _Group(NamedTuple):
    """Drafts of one domain that are scored in one pass, and their places in the batch."""

    places: list[int]
    sides: list[Side]
    decision_ids: list[str]
    columns: list[list[int] | None]
    contexts: Floats
    eligible: Booleans | None

    @property
    def domain(self) -> Domain:
        """The domain of all of them."""
        return self.sides[0].domain


class Selecting:
    """Decides rounds and writes them.

    Decisions of a relaxed experiment are answered before they are durable. The exceptions are rounds
    that the caller has named, for the log may hold them, and decisions beyond the unwritten bound.
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

    async def select(self, served: Served, rounds: Sequence[DecisionRequest]) -> list[Answered]:
        """The answers to the rounds, all under one policy; all are written or none."""
        batch = self.decide(served, rounds) or await self.decide_in_thread(served, rounds)
        return self.write_later(batch) or await self.write(batch)

    def decide(self, served: Served, rounds: Sequence[DecisionRequest]) -> Batch | None:
        """The rounds with what is chosen for them; None if scoring them would hold up the event loop."""
        count = sum([len(round_.sides) for round_ in rounds])
        if not self._scorer.is_small(served.policy, count):
            return None
        drafts = _drafts(served, rounds)
        with tracing.span("score", decisions=count):
            groups = _groups(served, drafts)
            selections = [
                self._scorer.score(
                    served.policy, each.domain, each.contexts, each.decision_ids, each.eligible
                )
                for each in groups
            ]
            return Batch(served, rounds, drafts, _chosen(served, groups, selections))

    async def decide_in_thread(self, served: Served, rounds: Sequence[DecisionRequest]) -> Batch:
        """The same for any number of rounds and any policy, in the scorer's thread."""
        drafts = _drafts(served, rounds)
        with tracing.span("score", decisions=len(drafts)):
            groups = _groups(served, drafts)
            selections = await asyncio.gather(
                *(
                    self._scorer.select(
                        served.policy, each.domain, each.contexts, each.decision_ids, each.eligible
                    )
                    for each in groups
                )
            )
            return Batch(served, rounds, drafts, _chosen(served, groups, selections))

    async def decide_again(self, served: Served, side: Side, decision_id: str) -> Chosen:
        """What the policy chooses for a side under the id of an earlier decision."""
        origin = DecisionOrigin(served.experiment.experiment_id, "", "", served.version)
        group = _group(served, [_Draft(origin, side, decision_id)], [0])
        selection = await self._scorer.select(
            served.policy, side.domain, group.contexts, [decision_id], group.eligible
        )
        return _chosen(served, [group], [selection])[0]

    def write_later(self, batch: Batch) -> list[Answered] | None:
        """The answers of a relaxed experiment, written within milliseconds; None if they must be written first."""
        served = batch.served
        is_relaxed = served.spec.is_relaxed and batch.is_new
        if not is_relaxed or not self._event_log.can_append_later(len(batch.drafts)):
            return None
        refusal = REFUSALS.get(served.experiment.status)
        if refusal is not None:
            raise refusal
        events, name = batch.events(), served.experiment.name

        def note_loss(error: ServiceError) -> None:
            if isinstance(error, UnknownExperiment):
                return  # it was deleted, and its decisions are erased with it
            self._metrics.count_lost_decisions(name, len(events))
            details = {"action": "decisions_lost", "experiment": name, "problem": error.slug}
            log.error("decisions were answered and could not be written", extra=details)

        self._event_log.append_later(events, note_loss)
        return self._answers(batch, None)

    async def write(self, batch: Batch) -> list[Answered]:
        """The answers once all of the batch is durable: new decisions, or those that the log held."""
        return self._answers(batch, await self._event_log.append(batch.events()))

    def _answers(self, batch: Batch, appended: Sequence[Appended] | None) -> list[Answered]:
        """Answer, remember and count decisions; what was `appended` may have been there before."""
        served = batch.served
        made = zip(batch.drafts, batch.chosen, strict=True)
        if appended is None:
            decided = [_new(*each) for each in made]
        else:
            decided = [
                _new(draft, chosen) if created else _stored(event)
                for (draft, chosen), (event, created) in zip(made, appended, strict=True)
            ]
        owner = Owner(served.experiment.experiment_id, served.experiment.name)
        self._recent.add([each.answer.decision_id for each in decided], owner)
        self._count(served, decided)
        sides = iter(decided)
        return [
            _answered(served, round_, list(islice(sides, len(round_.sides))))
            for round_ in batch.rounds
        ]

    def _count(self, served: Served, decided: Sequence[_Decided]) -> None:
        """Count the new ones."""
        entropies: defaultdict[Domain, list[float]] = defaultdict(list)
        for each in decided:
            if each.entropy is not None:
                entropies[each.domain].append(each.entropy)
        for domain, some in entropies.items():
            self._metrics.count_decisions(served.experiment.name, domain, len(some), sum(some))


def _drafts(served: Served, rounds: Sequence[DecisionRequest]) -> list[_Draft]:
    """The decisions to make, in the order of the rounds and of their sides."""
    experiment_id, version = served.experiment.experiment_id, served.policy.version.version
    asked: list[tuple[DecisionOrigin, Side]] = []
    prefixes: dict[tuple[str, ...], bytes] = {}
    for round_ in rounds:
        digest = round_.digest(prefixes)
        origin = DecisionOrigin(experiment_id, round_.request_id, digest, version, round_.is_new)
        asked += [(origin, side) for side in round_.sides]
    return [
        _Draft(origin, side, decision_id)
        for (origin, side), decision_id in zip(asked, uuid7s(len(asked)), strict=True)
    ]


def _groups(served: Served, drafts: Sequence[_Draft]) -> list[_Group]:
    """The drafts by what can be scored together: a domain, and an arm count where arms have contexts."""
    places: defaultdict[tuple[Domain, int], list[int]] = defaultdict(list)
    is_per_arm = served.spec.is_per_arm
    for place, draft in enumerate(drafts):
        places[draft.side.domain, len(draft.side.arms) if is_per_arm else 0].append(place)
    return [_group(served, drafts, some) for some in places.values()]


def _group(served: Served, drafts: Sequence[_Draft], places: list[int]) -> _Group:
    some = [drafts[place] for place in places]
    sides = [draft.side for draft in some]
    columns = [_columns(served, side) for side in sides]
    return _Group(
        places,
        sides,
        [draft.decision_id for draft in some],
        columns,
        contexts_of(sides, served.spec),
        _eligible(served, columns),
    )


def _chosen(
    served: Served, groups: Sequence[_Group], selections: Sequence[Selection]
) -> list[Chosen]:
    """What is chosen for each draft, in their order."""
    encoder_version = served.policy.version.encoder_version
    found: dict[int, Chosen] = {}
    for group, selection in zip(groups, selections, strict=True):
        chosen = chosen_arms(selection, group.sides, group.columns, encoder_version)
        found.update(zip(group.places, chosen, strict=True))
    return [found[place] for place in range(len(found))]


def _answered(served: Served, round_: DecisionRequest, decided: Sequence[_Decided]) -> Answered:
    body: dict[str, Any] = {
        "experiment": served.spec.name,
        "request_id": round_.request_id,
        "policy_version": decided[0].policy_version,
    }
    for each in decided:
        body[each.domain.value] = each.answer
    return Answered(body, is_replay=all(each.entropy is None for each in decided))


def _new(draft: _Draft, chosen: Chosen) -> _Decided:
    answer = decision_answer(draft.decision_id, chosen.arm, chosen.payload)
    return _Decided(draft.side.domain, answer, draft.origin.policy_version, chosen.entropy)


def _stored(event: StoredEvent) -> _Decided:
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
