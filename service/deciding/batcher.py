"""Joins the selects of one event-loop tick: in a batch, a decision costs a fraction of itself."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import Any

from msgspec import Struct

from service.codec.wire import REPLAYED, Answer
from service.deciding.policies import Served
from service.deciding.select import Answered, Batch, DecisionRequest, Selecting
from service.errors import ServiceError
from service.ops import tracing


class _Waiter(Struct, frozen=True):
    """A caller's round, and the future of its answer."""

    served: Served
    round: DecisionRequest
    answer: asyncio.Future[Answer]
    context: Context | None  # of its own, where requests are traced


Waiters = Sequence[_Waiter]


class RequestBatcher:
    """Decides the rounds of many callers as one batch; what one of them is refused for concerns it alone.

    It adds no delay of its own: rounds are decided at the end of the tick in which they came.
    """

    def __init__(self, selecting: Selecting) -> None:
        self._selecting = selecting
        self._waiting: list[_Waiter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def select(self, served: Served, round_: DecisionRequest) -> asyncio.Future[Answer]:
        """The answer to a round; cancelled before the tick ends, the round is not decided."""
        self._selecting.check(served, [[side.arms for side in round_.sides]])
        loop = asyncio.get_running_loop()
        context = copy_context() if tracing.is_on() else None
        waiter = _Waiter(served, round_, loop.create_future(), context)
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            # In a context of its own: log lines about many requests name none of them.
            loop.call_soon(self._flush, context=Context())
        return waiter.answer

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for group in _groups([each for each in waiting if not each.answer.done()]):
            context = group[0].context
            if context is None:
                self._decide(group)
            else:
                context.run(self._decide, group)

    def _decide(self, group: Waiters) -> None:
        """Answer a group now if nothing has to be waited for, else in a task."""
        served, rounds = group[0].served, [each.round for each in group]
        try:
            batch = self._selecting.decide(served, rounds)
            answers = None if batch is None else self._selecting.write_later(batch)
        except Exception as error:  # noqa: BLE001 - callers get every error
            self._fail(group, error, self._decide)
            return
        if answers is not None:
            _deliver(group, answers)
        else:
            self._start(self._finish(group, batch))

    async def _finish(self, group: Waiters, batch: Batch | None) -> None:
        if batch is None:
            served, rounds = group[0].served, [each.round for each in group]
            try:
                batch = await self._selecting.decide_in_thread(served, rounds)
            except Exception as error:  # noqa: BLE001 - callers get every error
                self._fail(group, error, lambda one: self._start(self._finish(one, None)))
                return
        if batch.is_new:
            await self._write(group, batch)
            return
        # The log may refuse one of these requests alone, for it knows another under its name.
        parts = zip(group, batch.split(), strict=True)
        await asyncio.gather(*(self._write([waiter], part) for waiter, part in parts))

    async def _write(self, group: Waiters, batch: Batch) -> None:
        try:
            answers = await self._selecting.write(batch)
        except Exception as error:  # noqa: BLE001 - callers get every error
            _refuse(group, error)
        else:
            _deliver(group, answers)

    def _fail(self, group: Waiters, error: Exception, again: Callable[[Waiters], None]) -> None:
        """Refuse all callers; after an unexpected error try each round alone, as one may have caused it."""
        if len(group) == 1 or isinstance(error, ServiceError):
            _refuse(group, error)
            return
        for waiter in group:
            again([waiter])

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _groups(waiting: Waiters) -> list[Waiters]:
    """Rounds that can be one batch: under one policy, and all of them new or none.

    A traced request is a batch of its own, and so are its spans.
    """
    joined: defaultdict[tuple[int, bool, int], list[_Waiter]] = defaultdict(list)
    for number, each in enumerate(waiting):
        trace = 0 if each.context is None else number + 1
        joined[id(each.served), each.round.is_new, trace].append(each)
    return list(joined.values())


def _deliver(group: Waiters, answers: Sequence[Answered]) -> None:
    for waiter, answered in zip(group, answers, strict=True):
        try:
            headers = (REPLAYED,) if answered.is_replay else ()
            answer = Answer(answered.content(), headers=headers)
        except Exception as error:  # noqa: BLE001 - what is wrong with one answer fails it alone
            _refuse([waiter], error)
        else:
            if not waiter.answer.done():
                waiter.answer.set_result(answer)


def _refuse(group: Waiters, error: Exception) -> None:
    for waiter in group:
        if not waiter.answer.done():
            waiter.answer.set_exception(error)
