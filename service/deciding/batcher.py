"""Joins the rounds that the event loop reads in one turn: beside others, a decision costs a fraction of itself."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Protocol, TypeVar

from msgspec import Struct

from service.deciding import eager
from service.deciding.policies import Served
from service.deciding.select import Answered, Round, Selecting
from service.errors import ServiceError
from service.ops import tracing

log = logging.getLogger(__name__)

T = TypeVar("T")


class Asker(Protocol):
    """Who asked for a decision."""

    @property
    def is_gone(self) -> bool:
        """Whether nobody wants the answer any more."""

    def take(self, answered: Answered) -> None:
        """The answer is this."""

    def fail(self, error: Exception) -> None:
        """There is no answer, for this reason."""


class _Coroutine:
    """A coroutine that awaits `answer`, unless it is cancelled."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.answer: asyncio.Future[Answered] = loop.create_future()

    @property
    def is_gone(self) -> bool:
        return self.answer.done()

    def take(self, answered: Answered) -> None:
        if not self.is_gone:
            self.answer.set_result(answered)

    def fail(self, error: Exception) -> None:
        if not self.is_gone:
            self.answer.set_exception(error)


class _Waiting(Struct, frozen=True):
    """One caller's round."""

    served: Served
    round: Round
    asker: Asker


Group = Sequence[_Waiting]


class TurnSelecting:
    """Decides rounds of many callers as one batch; what one of them is refused for is not the others' matter.

    It adds no delay of its own: rounds are decided at the end of the turn in which they came.
    """

    def __init__(self, selecting: Selecting) -> None:
        self._selecting = selecting
        self._waiting: list[_Waiting] = []
        self._deciding: set[asyncio.Task[None]] = set()

    async def select(self, served: Served, round_: Round) -> Answered:
        """The answer to the round, written as durably as its experiment asks for."""
        if tracing.is_on():  # a span belongs to one request
            (answered,) = await self._selecting.select(served, [round_])
            return answered
        asker = _Coroutine()
        self.join(served, round_, asker)
        return await asker.answer

    def join(self, served: Served, round_: Round, asker: Asker) -> None:
        """Let the asker have the same answer, at the end of a turn or later."""
        self._waiting.append(_Waiting(served, round_, asker))
        if len(self._waiting) == 1:
            # In a context of its own: log lines about many requests name none of them.
            asyncio.get_running_loop().call_soon(self._begin, context=Context())

    def _begin(self) -> None:
        waiting, self._waiting = self._waiting, []
        for group in _groups(waiting):
            rest = eager.begin(self._decide(group))
            if rest is not None:
                self._deciding.add(rest)
                rest.add_done_callback(self._deciding.discard)

    async def _decide(self, group: Group) -> None:
        try:
            answers = await self._selecting.select(
                group[0].served, [waiting.round for waiting in group]
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, callers are told
            await self._decide_apart(group, error)
            return
        for waiting, answered in zip(group, answers, strict=True):
            _tell(waiting.asker.take, answered)

    async def _decide_apart(self, group: Group, error: Exception) -> None:
        """Tell the error whom it concerns: what is the service's fault hits all, anything else one of them.

        It is looked for by halves, so that who sends nonsense does not cost the others of a turn their batch.
        """
        is_of_all = isinstance(error, ServiceError) and error.status >= 500
        if len(group) > 1 and not is_of_all:
            half = len(group) // 2
            await asyncio.gather(self._decide(group[:half]), self._decide(group[half:]))
            return
        for waiting in group:
            _tell(waiting.asker.fail, error)


def _tell(asker: Callable[[T], None], said: T) -> None:
    """Tell an asker; what is wrong with one of them must not keep the others waiting."""
    try:
        asker(said)
    except Exception:
        log.exception("an answer could not be sent", extra={"action": "answer_unsent"})


def _groups(waiting: Group) -> list[Group]:
    """Rounds that can be one batch: under one policy, and all of them new or none.

    Callers that went away are left out. A request that is there twice is decided twice, for the
    second answer is the first one's.
    """
    joined: defaultdict[tuple[int, bool], dict[str, _Waiting]] = defaultdict(dict)
    again: list[Group] = []
    for each in waiting:
        group = joined[id(each.served), each.round.is_new]
        if each.asker.is_gone:
            continue
        if each.round.request_id in group:
            again.append([each])
        else:
            group[each.round.request_id] = each
    return [*(list(group.values()) for group in joined.values() if group), *again]
