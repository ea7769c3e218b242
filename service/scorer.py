"""The scorer: joins the requests that wait into one forward pass, adding no delay of its own.

Requests that the event loop reads in one turn are scored together at the end of that turn. On the
CPU this happens inline (a hand-over to a thread costs more than scoring); a GPU has one thread.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np

from model.policy import Policy
from model.randomness import draw_key
from model.rounds import Booleans, Domain, Floats, Keys, Scores, Selection
from service.errors import Overloaded


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
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


def _ignore(callers: int, batches: list[int]) -> None:
    """Observe nothing."""


class Scorer:
    """Selects for many callers at once; a caller with bad contexts fails alone.

    `on_scoring` is told how many callers waited, and the contexts of each pass over them.
    """

    def __init__(
        self,
        device: str = "cpu",
        max_waiting: int = 4096,
        on_scoring: Callable[[int, list[int]], None] = _ignore,
    ) -> None:
        self._on_scoring = on_scoring
        self._max_waiting = max_waiting
        self._waiting: list[_Waiting] = []
        self._thread = None if device == "cpu" else ThreadPoolExecutor(1, "daband-scorer")

    async def select(
        self,
        policy: Policy,
        domain: Domain,
        contexts: Floats,
        decision_ids: Sequence[str],
        eligible: Booleans | None = None,
    ) -> Selection:
        """One arm a row of the contexts; ValueError for contexts that the policy cannot take."""
        if len(self._waiting) >= self._max_waiting:
            raise Overloaded
        loop = asyncio.get_running_loop()
        keys = np.array([draw_key(decision_id) for decision_id in decision_ids], dtype=np.uint64)
        answer: asyncio.Future[Selection] = loop.create_future()
        self._waiting.append(_Waiting(policy, domain, contexts, keys, eligible, answer))
        if len(self._waiting) == 1:
            loop.call_soon(self._flush)
        return await answer

    async def run(self) -> None:
        """Nothing to do between requests: wait to be cancelled."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Finish what waits."""
        self._flush()
        if self._thread is not None:
            self._thread.shutdown()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        groups: dict[object, list[_Waiting]] = defaultdict(list)
        for each in waiting:
            if not each.answer.done():  # a caller that went away is not scored
                groups[each.group()].append(each)
        batches = [sum(len(each.keys) for each in group) for group in groups.values()]
        self._on_scoring(len(waiting), batches)
        for group in groups.values():
            if self._thread is None:
                _deliver(group, _scored(group))
            else:
                scoring = asyncio.get_running_loop().run_in_executor(self._thread, _scored, group)
                scoring.add_done_callback(partial(_deliver_from_thread, group))


def _scored(group: list[_Waiting]) -> list[Selection | ValueError]:
    """One result a caller, from one pass if all of it is well."""
    if len(group) == 1:
        return [_scored_alone(group[0])]
    first = group[0]
    contexts = np.concatenate([each.contexts for each in group])
    keys = np.concatenate([each.keys for each in group])
    masks = [each.eligible for each in group if each.eligible is not None]
    eligible = np.concatenate(masks) if masks else None
    try:
        whole = first.policy.select_many(contexts, first.domain, keys, eligible)
    except ValueError:
        return [_scored_alone(each) for each in group]
    ends = np.cumsum([len(each.keys) for each in group])
    return [_rows(whole, end - len(each.keys), end) for each, end in zip(group, ends, strict=True)]


def _scored_alone(waiting: _Waiting) -> Selection | ValueError:
    try:
        return waiting.policy.select_many(
            waiting.contexts, waiting.domain, waiting.keys, waiting.eligible
        )
    except ValueError as error:
        return error


def _rows(whole: Selection, start: int, end: int) -> Selection:
    scores = Scores(*(part[start:end] for part in whole.scores))
    return Selection(whole.arms[start:end], whole.probabilities[start:end], scores)


def _deliver_from_thread(
    group: list[_Waiting], done: asyncio.Future[list[Selection | ValueError]]
) -> None:
    _deliver(group, done.result())


def _deliver(group: list[_Waiting], results: list[Selection | ValueError]) -> None:
    for waiting, result in zip(group, results, strict=True):
        if waiting.answer.done():
            continue
        if isinstance(result, ValueError):
            waiting.answer.set_exception(result)
        else:
            waiting.answer.set_result(result)
