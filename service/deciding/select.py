"""One select: `decide` scores under one policy, `write` makes the decisions durable.

`decide` is a plain function and never waits. `write` waits for the log and answers what it holds. A batch
with many arms is decided and encoded in slices outside the event loop.
"""

import asyncio
import hashlib
import logging
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
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
from service.deciding.long_work import MOST_ARMS_ON_LOOP, LongWork
from service.deciding.policies import Served
from service.deciding.request_limits import RequestLimits
from service.deciding.scorer import MOST_IN_PASS, Scorer
from service.errors import ServiceError, UnknownExperiment
from service.metrics import Metrics
from service.ops import tracing
from service.records import CONTEXT_TYPE, Appended, Domain, NewEvent, StoredEvent, uuid7s
from service.storage.events.append_plan import REFUSALS
from service.storage.events.log import EventLog

MAX_RECENT = 65_536
ARMS_A_SLICE = 20_000

T = TypeVar("T")


class Run(Protocol):
    """Runs work, here or in a thread."""

    async def __call__(self, work: Callable[[], T]) -> T: ...


_encode = msgspec.json.Encoder().encode

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
    """The answer to a round, encoded already if it is of a long batch; `is_replay` when it had been answered before."""

    body: dict[str, Any] | bytes
    is_replay: bool

    def content(self) -> bytes:
        """The answer as JSON."""
        return self.body if isinstance(self.body, bytes) else _encode(self.body)


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


class _AnsweredRound(NamedTuple):
    """The answer to a round and its decisions, of which ids and entropies are still needed."""

    answered: Answered
    decided: Sequence[_Decided]

    def encoded(self) -> "_AnsweredRound":
        """The same without the scores of all arms as objects."""
        answered = Answered(self.answered.content(), self.answered.is_replay)
        return _AnsweredRound(answered, [_without_arms(each) for each in self.decided])


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

    @property
    def arm_count(self) -> int:
        """The arms of all decisions."""
        return sum([len(each.side.arms) for each in self.drafts])

    def events(self) -> Iterator[NewEvent]:
        """The decisions as events of the log."""
        for each, chosen in zip(self.drafts, self.chosen, strict=True):
            yield decision_event(each.origin, each.side, each.decision_id, chosen)

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
        limits: RequestLimits,
        long_work: LongWork,
    ) -> None:
        self._limits = limits
        self._long_work = long_work
        self._scorer = scorer
        self._event_log = event_log
        self._recent = recent
        self._metrics = metrics

    async def select(self, served: Served, rounds: Sequence[DecisionRequest]) -> list[Answered]:
        """The answers to the rounds, all under one policy; all are written or none."""
        self.check(served, [[side.arms for side in round_.sides] for round_ in rounds])
        batch = self.decide(served, rounds)
        if batch is not None:
            return self.write_later(batch) or await self.write(batch)
        is_long = sum(map(_arm_count, rounds)) > MOST_ARMS_ON_LOOP
        async with self._long_work.admitted() if is_long else nullcontext():
            batch = await self.decide_in_thread(served, rounds)
            return self.write_later(batch) or await self.write(batch)

    def check(self, served: Served, rounds: Sequence[Sequence[Collection[str]]]) -> None:
        """Raise `BatchTooLarge` if rounds that offer these arms on their sides are too many."""
        rows = sum([len(sides) for sides in rounds])
        arms = sum([len(side) for sides in rounds for side in sides])
        if not self._scorer.is_small(served.policy, rows, arms):
            self._limits.check_rounds(served.spec, served.policy.config, rounds)

    def decide(self, served: Served, rounds: Sequence[DecisionRequest]) -> Batch | None:
        """The rounds with what is chosen for them; None if scoring them would hold up the event loop."""
        count = sum([len(round_.sides) for round_ in rounds])
        arm_count = sum([len(side.arms) for round_ in rounds for side in round_.sides])
        if not self._scorer.is_small(served.policy, count, arm_count):
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
        """Decide any number of rounds of any policy, in the scorer's thread.

        Other requests may come between two slices of a batch with many arms.
        """
        is_long = sum(map(_arm_count, rounds)) > MOST_ARMS_ON_LOOP
        run = self._long_work.run if is_long else _at_once
        slices = _slices(served, rounds) if is_long else [rounds]
        parts = [await self._decided(served, each, run) for each in slices]
        drafts = [draft for part in parts for draft in part.drafts]
        chosen = [each for part in parts for each in part.chosen]
        return Batch(served, rounds, drafts, chosen)

    async def _decided(self, served: Served, rounds: Sequence[DecisionRequest], run: Run) -> Batch:
        drafts = await run(partial(_drafts, served, rounds))
        with tracing.span("score", decisions=len(drafts)):
            groups = await run(partial(_groups, served, drafts))
            selections = await asyncio.gather(
                *(
                    self._scorer.select(
                        served.policy, each.domain, each.contexts, each.decision_ids, each.eligible
                    )
                    for each in groups
                )
            )
            chosen = await run(partial(_chosen, served, groups, selections))
            return Batch(served, rounds, drafts, chosen)

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
        if not is_relaxed or batch.arm_count > MOST_ARMS_ON_LOOP:
            return None  # a long one is encoded in slices, which takes time
        if not self._event_log.can_append_later(len(batch.drafts)):
            return None
        refusal = REFUSALS.get(served.experiment.status)
        if refusal is not None:
            raise refusal
        events, name = list(batch.events()), served.experiment.name

        def note_loss(error: ServiceError) -> None:
            if isinstance(error, UnknownExperiment):
                return  # it was deleted, and its decisions are erased with it
            self._metrics.count_lost_decisions(name, len(events))
            details = {"action": "decisions_lost", "experiment": name, "problem": error.slug}
            log.error("decisions were answered and could not be written", extra=details)

        self._event_log.append_later(events, note_loss)
        return self._answers(served, list(_answered_rounds(batch, None)))

    async def write(self, batch: Batch) -> list[Answered]:
        """The answers once all of the batch is durable: new decisions, or those that the log held."""
        if batch.arm_count <= MOST_ARMS_ON_LOOP:
            appended = await self._event_log.append(list(batch.events()))
            return self._answers(batch.served, list(_answered_rounds(batch, appended)))
        appended = await self._event_log.append(await self._long_work.all(batch.events()))
        rounds = (each.encoded() for each in _answered_rounds(batch, appended))
        return self._answers(batch.served, await self._long_work.all(rounds))

    def _answers(self, served: Served, rounds: Sequence[_AnsweredRound]) -> list[Answered]:
        """Remember and count the decisions of answered rounds."""
        decided = [each for round_ in rounds for each in round_.decided]
        owner = Owner(served.experiment.experiment_id, served.experiment.name)
        self._recent.add([each.answer.decision_id for each in decided], owner)
        self._count(served, decided)
        return [round_.answered for round_ in rounds]

    def _count(self, served: Served, decided: Sequence[_Decided]) -> None:
        """Count the new ones."""
        entropies: defaultdict[Domain, list[float]] = defaultdict(list)
        for each in decided:
            if each.entropy is not None:
                entropies[each.domain].append(each.entropy)
        for domain, some in entropies.items():
            self._metrics.count_decisions(served.experiment.name, domain, len(some), sum(some))


async def _at_once(work: Callable[[], T]) -> T:
    return work()


def _arm_count(round_: DecisionRequest) -> int:
    return sum([len(side.arms) for side in round_.sides])


def _slices(
    served: Served, rounds: Sequence[DecisionRequest]
) -> Iterator[Sequence[DecisionRequest]]:
    """The rounds of a long batch in parts that each hold up others for some 10 ms."""
    arm_count = sum(map(_arm_count, rounds))
    rows = max(1, MOST_IN_PASS // served.policy.multiplications)
    size = max(1, min(rows, ARMS_A_SLICE * len(rounds) // arm_count))
    for start in range(0, len(rounds), size):
        yield rounds[start : start + size]


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


def _answered_rounds(batch: Batch, appended: Sequence[Appended] | None) -> Iterator[_AnsweredRound]:
    """The rounds one by one; what was `appended` may have been there before."""
    made = zip(batch.drafts, batch.chosen, strict=True)
    if appended is None:
        decided = (_new(*each) for each in made)
    else:
        decided = (
            _new(draft, chosen) if created else _stored(event)
            for (draft, chosen), (event, created) in zip(made, appended, strict=True)
        )
    for round_ in batch.rounds:
        sides = list(islice(decided, len(round_.sides)))
        yield _AnsweredRound(_answered(batch.served, round_, sides), sides)


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


def _without_arms(decided: _Decided) -> _Decided:
    answer = DecisionAnswer(decided.answer.decision_id, decided.answer.arm, {}, {})
    return _Decided(decided.domain, answer, decided.policy_version, decided.entropy)


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
