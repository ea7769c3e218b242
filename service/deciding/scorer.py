"""The scorer: joins the requests that wait into one forward pass, adding no delay of its own.

On the CPU small passes are made on the event loop, for a hand-over to a thread costs more. The rounds of
many callers are joined before they come here (`batcher`).

Large passes, and all passes on a GPU, are made in one thread, so that they delay nobody else. What comes in
one event-loop tick, or while the thread works, is joined. A GPU that is lost is replaced by the CPU.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from model import Booleans, Domain, Floats, Keys, Policy, Scores, Selection, draw_keys
from service.errors import Overloaded

CPU = "cpu"
DEVICE_ERROR = "CUDA error"  # so begins what torch says of a GPU that no longer works
MOST_ON_LOOP = 16_000_000  # multiplications, about 2 ms
ROWS_OF_WEIGHTS = 4  # to read the weights takes about as long as so many rows


log = logging.getLogger(__name__)


class Placement:
    """Puts policies on a device, each with a copy on the CPU that takes over when it is lost.

    What a lost GPU held cannot be read any more, so the copies are made while it still works.
    """

    def __init__(self, device: str = CPU, on_loss: Callable[[], None] = lambda: None) -> None:
        self.device = device
        self._on_loss = on_loss
        self._copies: WeakKeyDictionary[Policy, Policy] = WeakKeyDictionary()

    def placed(self, make: Callable[[str], Policy]) -> Policy:
        """The policy that `make` makes for a device, ready to serve."""
        copy = make(CPU)
        if self.device == CPU:
            return warm(copy)
        try:
            policy = warm(make(self.device))
        except RuntimeError as error:
            if not self.is_lost_by(error):
                raise
            return warm(copy)
        self._copies[policy] = copy
        return policy

    def usable(self, policy: Policy) -> Policy:
        """The policy, or its copy once the device is lost."""
        return policy if self.device != CPU else self._copies.get(policy, policy)

    def is_lost_by(self, error: Exception) -> bool:
        """Whether an error says that the device is lost; the CPU is used from then on."""
        if not (isinstance(error, RuntimeError) and DEVICE_ERROR in str(error)):
            return False
        if self.device != CPU:
            self.device = CPU
            log.error("the device is lost", extra={"action": "device_lost"}, exc_info=error)
            self._on_loss()
        return True


def warm(policy: Policy) -> Policy:
    """The policy after a first pass for each domain: what is set up on first use is set up."""
    config = policy.config
    leading = (1, 1) if config.is_joint else (1,)
    contexts = np.zeros((*leading, *config.context_shape), dtype=np.float32)
    for domain in Domain:
        policy.select_many(contexts, domain, np.zeros(1, dtype=np.uint64))
    return policy


class _Waiting(NamedTuple):
    """One caller's rows."""

    policy: Policy
    domain: Domain
    contexts: Floats
    keys: Keys
    eligible: Booleans | None
    answer: asyncio.Future[Selection]

    def group(self) -> tuple[int, Domain, bool, tuple[int, ...]]:
        """Callers with equal groups can share a pass."""
        return id(self.policy), self.domain, self.eligible is None, self.contexts.shape[1:]


def _ignore(batches: list[int]) -> None:
    """Observe nothing."""


Group = list[_Waiting]
Result = Selection | Exception


class Scorer:
    """Selects for many callers at once; a caller with bad contexts fails alone.

    `on_scoring` is told of how many contexts each pass is that is about to be made.
    """

    def __init__(
        self,
        device: str = "cpu",
        max_waiting: int = 4096,
        on_scoring: Callable[[list[int]], None] = _ignore,
        placement: Placement | None = None,
    ) -> None:
        self._on_scoring = on_scoring
        self._max_waiting = max_waiting
        self._placement = placement or Placement(device)
        self._waiting: Group = []
        self._row_count = 0  # of contexts that wait or are being scored
        self._thread = ThreadPoolExecutor(1, "daband-scorer")
        self._in_thread: asyncio.Task[None] | None = None

    def is_small(self, policy: Policy, row_count: int) -> bool:
        """Whether so many rows are scored quickly enough for the event loop."""
        policy = self._placement.usable(policy)
        return self._placement.device == CPU and fits_loop(policy, row_count)

    def score(
        self,
        policy: Policy,
        domain: Domain,
        contexts: Floats,
        decision_ids: Sequence[str],
        eligible: Booleans | None = None,
    ) -> Selection:
        """One arm a row of the contexts, now; for what `is_small`."""
        self._on_scoring([len(contexts)])
        policy = self._placement.usable(policy)
        return policy.select_many(contexts, domain, draw_keys(decision_ids), eligible)

    async def select(
        self,
        policy: Policy,
        domain: Domain,
        contexts: Floats,
        decision_ids: Sequence[str],
        eligible: Booleans | None = None,
    ) -> Selection:
        """The same for any number of rows: in the thread, unless it `is_small`."""
        size = len(contexts)
        if self.is_small(policy, size):
            return self.score(policy, domain, contexts, decision_ids, eligible)
        policy, keys = self._placement.usable(policy), draw_keys(decision_ids)
        if self._row_count and self._row_count + size > self._max_waiting:
            raise Overloaded
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Selection] = loop.create_future()
        self._waiting.append(_Waiting(policy, domain, contexts, keys, eligible, answer))
        self._row_count += size
        if len(self._waiting) == 1:
            loop.call_soon(self._flush)
        try:
            return await answer
        finally:
            self._row_count -= size

    async def run(self) -> None:
        """Nothing to do between requests: wait to be cancelled."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Finish what waits."""
        while self._waiting or self._in_thread is not None:
            self._flush()
            if self._in_thread is not None:
                await self._in_thread
        self._thread.shutdown()

    def _flush(self) -> None:
        if self._in_thread is not None:
            return  # what waits is joined when the thread is free
        waiting, self._waiting = self._waiting, []
        groups: defaultdict[object, Group] = defaultdict(list)
        for each in waiting:
            if not each.answer.done():  # a caller that went away is not scored
                groups[each.group()].append(each)
        batches = [sum(len(each.keys) for each in group) for group in groups.values()]
        self._on_scoring(batches)
        if groups:
            self._in_thread = asyncio.create_task(self._work(list(groups.values())))

    async def _work(self, groups: list[Group]) -> None:
        """Score in the thread, and again for what has come meanwhile."""
        loop = asyncio.get_running_loop()
        for group in groups:
            policy = self._placement.usable(group[0].policy)
            results = await loop.run_in_executor(self._thread, _scored, group, policy)
            if any(map(self._is_lost_by, results)):
                usable = self._placement.usable(policy)
                results = await loop.run_in_executor(self._thread, _scored, group, usable)
            _deliver(group, results)
        self._in_thread = None
        self._flush()

    def _is_lost_by(self, result: Result) -> bool:
        return isinstance(result, Exception) and self._placement.is_lost_by(result)


def fits_loop(policy: Policy, row_count: int) -> bool:
    """Whether the CPU scores so many rows in about 2 ms."""
    return (row_count + ROWS_OF_WEIGHTS) * policy.multiplications <= MOST_ON_LOOP


def _scored(group: Group, policy: Policy) -> list[Result]:
    """One result a caller, from one pass if all of it is well."""
    if len(group) == 1:
        return [_scored_alone(group[0], policy)]
    contexts = np.concatenate([each.contexts for each in group])
    keys = np.concatenate([each.keys for each in group])
    masks = [each.eligible for each in group if each.eligible is not None]
    eligible = np.concatenate(masks) if masks else None
    try:
        whole = policy.select_many(contexts, group[0].domain, keys, eligible)
    except Exception:  # noqa: BLE001 - whatever one caller brings, the others are served
        return [_scored_alone(each, policy) for each in group]
    return _split(whole, [len(each.keys) for each in group])


def _scored_alone(waiting: _Waiting, policy: Policy) -> Result:
    try:
        return policy.select_many(waiting.contexts, waiting.domain, waiting.keys, waiting.eligible)
    except Exception as error:  # noqa: BLE001 - it is this caller's
        return error


def _split(whole: Selection, sizes: list[int]) -> list[Result]:
    found: list[Result] = []
    end = 0
    for size in sizes:
        start, end = end, end + size
        mean, bonus, ucb = whole.scores
        scores = Scores(mean[start:end], bonus[start:end], ucb[start:end])
        found.append(Selection(whole.arms[start:end], whole.probabilities[start:end], scores))
    return found


def _deliver(group: Group, results: list[Result]) -> None:
    for waiting, result in zip(group, results, strict=True):
        if waiting.answer.done():
            continue
        if isinstance(result, Exception):
            waiting.answer.set_exception(result)
        else:
            waiting.answer.set_result(result)
