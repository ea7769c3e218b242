"""Rounds of one turn are one batch, and every caller has an answer of its own."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from service.deciding.batcher import TurnSelecting
from service.deciding.select import Answered, Round
from service.errors import ExperimentPaused, ServiceError, StorageUnavailable
from service.ops import logs, tracing
from tests.support.waiting import PATIENCE_SECONDS

ONE: Any = object()  # policies as they are served
OTHER: Any = object()


class Batches:
    """Answers a round with its id; refuses batches with the rounds that it is told to refuse."""

    def __init__(self, **refused: Exception) -> None:
        self.asked: list[tuple[Any, list[str]]] = []
        self.logged_of: list[Mapping[str, Any]] = []
        self.is_asked = asyncio.Event()
        self._refused = refused

    async def select(self, served: Any, rounds: Sequence[Round]) -> list[Answered]:
        ids = [round_.request_id for round_ in rounds]
        self.asked.append((served, ids))
        self.logged_of.append(logs.context())
        self.is_asked.set()
        await self._wait()
        for name in ids:
            if name in self._refused:
                raise self._refused[name]
        return [Answered({"request_id": name}, is_replay=False) for name in ids]

    async def _wait(self) -> None:
        await asyncio.sleep(0)


class AtOnce(Batches):
    """The same without waiting."""

    async def _wait(self) -> None:
        pass


class Asker:
    """Remembers what it is answered."""

    is_gone = False
    answered: Any = None

    def take(self, answered: Answered) -> None:
        self.answered = _named(answered)

    def fail(self, error: Exception) -> None:
        self.answered = error


def turn_of(batches: Batches) -> TurnSelecting:
    return TurnSelecting(batches)  # type: ignore[arg-type]


async def ask(turn: TurnSelecting, *names: str, served: Any = ONE, is_new: bool = True) -> Any:
    asked = (turn.select(served, Round(name, (), is_new)) for name in names)
    async with asyncio.timeout(PATIENCE_SECONDS):  # who is forgotten would wait for ever
        found = await asyncio.gather(*asked, return_exceptions=True)
    return [_named(each) if isinstance(each, Answered) else each for each in found]


def _named(answered: Answered) -> Any:
    assert isinstance(answered.body, dict)
    return answered.body["request_id"]


async def test_rounds_of_one_turn_are_one_batch():
    batches = Batches()
    turn = turn_of(batches)
    assert await ask(turn, "a", "b", "c") == ["a", "b", "c"]
    assert await ask(turn, "d") == ["d"]
    assert batches.asked == [(ONE, ["a", "b", "c"]), (ONE, ["d"])]


async def test_what_waits_for_nothing_is_answered_in_its_turn():
    turn, askers = turn_of(AtOnce()), [Asker(), Asker()]
    for number, asker in enumerate(askers):
        turn.join(ONE, Round(str(number), (), True), asker)
    await asyncio.sleep(0)
    assert [asker.answered for asker in askers] == ["0", "1"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_policies_are_apart_and_so_are_new_requests_and_named_ones():
    batches = Batches()
    turn = turn_of(batches)
    await asyncio.gather(
        ask(turn, "a", "b"),
        ask(turn, "c", served=OTHER),
        ask(turn, "d", "e", is_new=False),
    )
    assert sorted(ids for _, ids in batches.asked) == [["a", "b"], ["c"], ["d", "e"]]
    assert [served for served, ids in batches.asked if ids == ["c"]] == [OTHER]


async def test_a_request_sent_twice_is_decided_after_itself():
    batches = Batches()
    assert await ask(turn_of(batches), "a", "b", "a", is_new=False) == ["a", "b", "a"]
    assert [ids for _, ids in batches.asked] == [["a", "b"], ["a"]]


async def test_who_is_refused_is_refused_alone():
    refusal, bug = ExperimentPaused(), KeyError("b")
    for error in (refusal, bug):
        batches = Batches(b=error)
        assert await ask(turn_of(batches), "a", "b", "c") == ["a", error, "c"]
        assert [ids for _, ids in batches.asked] == [list("abc"), ["a"], ["b", "c"], ["b"], ["c"]]


async def test_who_is_refused_costs_the_others_few_batches():
    names = [f"r-{number}" for number in range(64)]
    batches = Batches(**{"r-40": ExperimentPaused()})
    found = await ask(turn_of(batches), *names)
    assert [name for name, each in zip(names, found, strict=True) if each != name] == ["r-40"]
    assert len(batches.asked) == 1 + 2 * 6  # and not 65


async def test_what_is_the_services_fault_is_tried_once():
    error = StorageUnavailable()
    assert isinstance(error, ServiceError)
    batches = Batches(b=error)
    assert await ask(turn_of(batches), "a", "b", "c") == [error] * 3
    assert len(batches.asked) == 1


async def test_who_went_away_is_not_decided():
    batches = Batches()
    turn = turn_of(batches)
    gone = asyncio.ensure_future(turn.select(ONE, Round("gone", (), True)))
    staying = asyncio.ensure_future(turn.select(ONE, Round("staying", (), True)))
    asyncio.get_running_loop().call_soon(gone.cancel)
    await asyncio.sleep(0)  # both wait now
    assert (await staying).body == {"request_id": "staying"}
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert [ids for _, ids in batches.asked] == [["staying"]]


async def test_who_goes_away_later_harms_nobody():
    batches = Batches()
    turn = turn_of(batches)
    gone = asyncio.ensure_future(turn.select(ONE, Round("gone", (), True)))
    staying = asyncio.ensure_future(turn.select(ONE, Round("staying", (), True)))
    await batches.is_asked.wait()
    gone.cancel()
    assert (await staying).body == {"request_id": "staying"}
    assert gone.cancelled()


async def test_log_lines_of_a_batch_name_none_of_its_requests():
    batches = Batches()
    with logs.bound(request_id="the first"):
        await ask(turn_of(batches), "a", "b")
    assert batches.logged_of == [{}]


async def test_with_traces_every_request_is_decided_within_its_own_span(monkeypatch):
    monkeypatch.setattr(tracing, "is_on", lambda: True)
    batches = Batches()
    assert await ask(turn_of(batches), "a", "b") == ["a", "b"]
    assert [ids for _, ids in batches.asked] == [["a"], ["b"]]


async def test_an_asker_that_breaks_does_not_keep_the_others_waiting(
    caplog: pytest.LogCaptureFixture,
):
    class Broken:
        is_gone = False

        def take(self, answered: Answered) -> None:
            raise RuntimeError("secret")

        def fail(self, error: Exception) -> None:
            raise AssertionError("it was decided")

    turn = turn_of(Batches())
    turn.join(ONE, Round("broken", (), is_new=True), Broken())
    assert await ask(turn, "a", "b") == ["a", "b"]
    assert [record.action for record in caplog.records] == ["answer_unsent"]  # type: ignore[attr-defined]


async def test_a_batch_whose_asker_cannot_be_told_of_its_failure_does_not_keep_the_next_waiting():
    class Broken(Asker):
        def fail(self, error: Exception) -> None:
            raise OSError

    turn, other = turn_of(AtOnce(a=StorageUnavailable())), Asker()
    turn.join(ONE, Round("a", (), True), Broken())
    turn.join(OTHER, Round("b", (), True), other)
    await asyncio.sleep(0)
    assert other.answered == "b"
