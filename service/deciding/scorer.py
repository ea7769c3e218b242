"""The scorer: joins pending requests into one forward pass, without adding a delay.

On the CPU, small passes run on the event loop, because a switch to a thread costs more. `batcher` has
already joined the rounds of many callers.

Large passes, and all passes on a GPU, run in one thread, so that they do not delay other requests. Requests
of one event-loop tick, or those that arrive while the thread works, are joined. If the GPU is lost, the CPU
takes over.
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
from service.deciding.long_work import MOST_ARMS_ON_LOOP
from service.errors import Overloaded

CPU = "cpu"
DEVICE_ERROR = "CUDA error"  # in torch's error messages about a GPU that no longer works
MOST_ON_LOOP = 16_000_000  # multiplications, about 2 ms
MOST_IN_PASS = 400_000_000  # of a slice of a long request, about 50 ms: others wait for the thread
ROWS_OF_WEIGHTS = 4  # reading the weights takes about as long as scoring this many rows


log = logging.getLogger(__name__)


class Placement:
    """Puts policies on a device, each with a copy on the CPU for the case that the device is lost.

    The memory of a lost GPU cannot be read, so the copies are made in advance.
    """

    def __init__(self, device: str = CPU, on_loss: Callable[[], None] = lambda: None) -> None:
        self.device = device
        self._on_loss = on_loss
        self._copies: WeakKeyDictionary[Policy, Policy] = WeakKeyDictionary()

    def placed(self, make: Callable[[str], Policy]) -> Policy:
        """The policy that `make` builds for the device, warmed up."""
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
        """Whether an error means that the device is lost; from then on the CPU is used."""
        if not (isinstance(error, RuntimeError) and DEVICE_ERROR in str(error)):
            return False
        if self.device != CPU:
            self.device = CPU
            log.error("the device is lost", extra={"action": "device_lost"}, exc_info=error)
            self._on_loss()
        return True


def warm(policy: Policy) -> Policy:
    """The policy after a first pass for each domain, so that no request pays for lazy set-up."""
    config = policy.config
    leading = (1, 1) if config.is_joint else (1,)
    contexts = np.zeros((*leading, *config.context_shape), dtype=np.float32)
    for domain in Domain:
        policy.select_many(contexts, domain, np.zeros(1, dtype=np.uint64))
    return policy


class _PendingRows(NamedTuple):
    """One caller's rows that wait for the thread."""

    policy: Policy
    domain: Domain
    contexts: Floats
    keys: Keys
    eligible: Booleans | None
    answer: asyncio.Future[Selection]

    def group(self) -> tuple[int, Domain, bool, tuple[int, ...]]:
        """The key of rows that can share a pass."""
        return id(self.policy), self.domain, self.eligible is None, self.contexts.shape[1:]


Group = list[_PendingRows]
Result = Selection | Exception


class Scorer:
    """Selects for many callers at once; a caller with invalid contexts fails alone.

    `on_scoring` is called with the number of contexts of each pass before it is made.
    """

    def __init__(
        self,
        placement: Placement | None = None,
        max_waiting: int = 4096,
        on_scoring: Callable[[list[int]], None] = lambda batches: None,
    ) -> None:
        self._on_scoring = on_scoring
        self._max_waiting = max_waiting
        self._placement = placement or Placement()
        self._waiting: Group = []
        self._row_count = 0  # pending contexts and those being scored
        self._thread = ThreadPoolExecutor(1, "daband-scorer")
        self._in_thread: asyncio.Task[None] | None = None

    def is_small(self, policy: Policy, row_count: int, arm_count: int = 0) -> bool:
        """Whether rows can be scored on the event loop, and so many arms of them encoded, without blocking it too long."""
        policy = self._placement.usable(policy)
        return self._placement.device == CPU and fits_loop(policy, row_count, arm_count)

    def score(
        self,
        policy: Policy,
        domain: Domain,
        contexts: Floats,
        decision_ids: Sequence[str],
        eligible: Booleans | None = None,
    ) -> Selection:
        """One arm for each context, scored on the event loop; only if it `is_small`."""
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
        self._waiting.append(_PendingRows(policy, domain, contexts, keys, eligible, answer))
        self._row_count += size
        if len(self._waiting) == 1:
            loop.call_soon(self._flush)
        try:
            return await answer
        finally:
            self._row_count -= size

    async def close(self) -> None:
        """Finish the pending requests."""
        while self._waiting or self._in_thread is not None:
            self._flush()
            if self._in_thread is not None:
                await self._in_thread
        self._thread.shutdown()

    def _flush(self) -> None:
        if self._in_thread is not None:
            return  # pending requests are joined when the thread is free
        waiting, self._waiting = self._waiting, []
        groups: defaultdict[object, Group] = defaultdict(list)
        for each in waiting:
            if not each.answer.done():  # skip cancelled requests
                groups[each.group()].append(each)
        batches = [sum(len(each.keys) for each in group) for group in groups.values()]
        self._on_scoring(batches)
        if groups:
            self._in_thread = asyncio.create_task(self._work(list(groups.values())))

    async def _work(self, groups: list[Group]) -> None:
        """Score in the thread, then flush the requests that arrived meanwhile."""
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


def fits_loop(policy: Policy, row_count: int, arm_count: int) -> bool:
    """Whether the CPU scores the rows in about 2 ms, and encodes all their arms in about 10."""
    is_scored_soon = (row_count + ROWS_OF_WEIGHTS) * policy.multiplications <= MOST_ON_LOOP
    return is_scored_soon and arm_count <= MOST_ARMS_ON_LOOP


def _scored(group: Group, policy: Policy) -> list[Result]:
    """One result for each caller, from one pass if all contexts are valid."""
    if len(group) == 1:
        return [_scored_alone(group[0], policy)]
    contexts = np.concatenate([each.contexts for each in group])
    keys = np.concatenate([each.keys for each in group])
    masks = [each.eligible for each in group if each.eligible is not None]
    eligible = np.concatenate(masks) if masks else None
    try:
        whole = policy.select_many(contexts, group[0].domain, keys, eligible)
    except Exception:  # noqa: BLE001 - one caller's invalid contexts must not fail the others
        return [_scored_alone(each, policy) for each in group]
    return _split(whole, [len(each.keys) for each in group])


def _scored_alone(rows: _PendingRows, policy: Policy) -> Result:
    try:
        return policy.select_many(rows.contexts, rows.domain, rows.keys, rows.eligible)
    except Exception as error:  # noqa: BLE001 - raised for this caller
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
    for rows, result in zip(group, results, strict=True):
        if rows.answer.done():
            continue
        if isinstance(result, Exception):
            rows.answer.set_exception(result)
        else:
            rows.answer.set_result(result)
