"""Rounds of one tick are one batch, and every caller has an answer of its own."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from service.codec.wire import Answer
from service.deciding.batcher import RequestBatcher
from service.deciding.select import Answered, DecisionRequest
from service.errors import ExperimentPaused, RequestConflict, StorageUnavailable
from service.ops import logs, tracing
from tests.support.waiting import PATIENCE_SECONDS

ONE: Any = object()  # policies as they are served
OTHER: Any = object()


class Decided(NamedTuple):
    """Rounds that are decided and not written."""

    served: Any
    rounds: Sequence[DecisionRequest]

    @property
    def is_new(self) -> bool:
        return all(round_.is_new for round_ in self.rounds)

    def split(self) -> list["Decided"]:
        return [Decided(self.served, [each]) for each in self.rounds]

    @property
    def ids(self) -> list[str]:
        return [round_.request_id for round_ in self.rounds]


class Selects:
    """Answers a round with its id; fails to decide or to write configured rounds."""

    def __init__(
        self,
        *,
        breaks_on: Mapping[str, Exception] | None = None,
        refuses: Mapping[str, Exception] | None = None,
        is_relaxed: bool = False,
        is_large: bool = False,
    ) -> None:
        self.decided: list[tuple[Any, list[str]]] = []
        self.written: list[list[str]] = []
        self.logged_of: list[Mapping[str, Any]] = []
        self.is_asked = asyncio.Event()
        self._breaks_on = breaks_on or {}
        self._refuses = refuses or {}
        self._is_relaxed = is_relaxed
        self._is_large = is_large

    def check(self, served: Any, rounds: Sequence[Any]) -> None:
        """No request is too large."""

    def decide(self, served: Any, rounds: Sequence[DecisionRequest]) -> Decided | None:
        return None if self._is_large else self._batch(served, rounds)

    async def decide_in_thread(self, served: Any, rounds: Sequence[DecisionRequest]) -> Decided:
        await asyncio.sleep(0)
        return self._batch(served, rounds)

    def _batch(self, served: Any, rounds: Sequence[DecisionRequest]) -> Decided:
        batch = Decided(served, rounds)
        self.decided.append((served, batch.ids))
        self.logged_of.append(logs.context())
        self.is_asked.set()
        self._raise(self._breaks_on, batch)
        return batch

    def write_later(self, batch: Decided) -> list[Answered] | None:
        if not self._is_relaxed:
            return None
        self._raise(self._refuses, batch)
        return self._answers(batch)

    async def write(self, batch: Decided) -> list[Answered]:
        self.written.append(batch.ids)
        await asyncio.sleep(0)
        self._raise(self._refuses, batch)
        return self._answers(batch)

    def _raise(self, errors: Mapping[str, Exception], batch: Decided) -> None:
        for name in batch.ids:
            if name in errors:
                raise errors[name]

    def _answers(self, batch: Decided) -> list[Answered]:
        return [Answered({"request_id": name}, is_replay=False) for name in batch.ids]


def batcher_of(selects: Selects) -> RequestBatcher:
    return RequestBatcher(selects)  # type: ignore[arg-type]


def named(found: Any) -> Any:
    return json.loads(found.body)["request_id"] if isinstance(found, Answer) else found


async def ask(
    batcher: RequestBatcher, *names: str, served: Any = ONE, is_new: bool = True
) -> list[Any]:
    asked = [batcher.select(served, DecisionRequest(name, (), is_new)) for name in names]
    async with asyncio.timeout(PATIENCE_SECONDS):  # a forgotten request would wait for ever
        found = await asyncio.gather(*asked, return_exceptions=True)
    return [named(each) for each in found]


async def test_rounds_of_one_tick_are_one_batch():
    selects = Selects()
    batcher = batcher_of(selects)
    assert await ask(batcher, "a", "b", "c") == ["a", "b", "c"]
    assert await ask(batcher, "d") == ["d"]
    assert selects.decided == [(ONE, ["a", "b", "c"]), (ONE, ["d"])]
    assert selects.written == [["a", "b", "c"], ["d"]]


async def test_what_waits_for_nothing_is_answered_in_its_tick():
    batcher = batcher_of(Selects(is_relaxed=True))
    asked = [batcher.select(ONE, DecisionRequest(name, (), True)) for name in "ab"]
    await asyncio.sleep(0)
    assert [named(each.result()) for each in asked] == ["a", "b"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_is_large_is_decided_in_a_thread():
    selects = Selects(is_large=True)
    assert await ask(batcher_of(selects), "a", "b") == ["a", "b"]
    assert selects.written == [["a", "b"]]


async def test_policies_are_apart_and_so_are_new_requests_and_named_ones():
    selects = Selects()
    batcher = batcher_of(selects)
    await asyncio.gather(
        ask(batcher, "a", "b"),
        ask(batcher, "c", served=OTHER),
        ask(batcher, "d", "e", is_new=False),
    )
    assert sorted(ids for _, ids in selects.decided) == [["a", "b"], ["c"], ["d", "e"]]
    assert [served for served, ids in selects.decided if ids == ["c"]] == [OTHER]


async def test_named_requests_are_decided_together_and_written_each_by_itself():
    refusal = RequestConflict()
    selects = Selects(refuses={"b": refusal})
    found = await ask(batcher_of(selects), "a", "b", "c", is_new=False)
    assert found == ["a", refusal, "c"]
    assert [ids for _, ids in selects.decided] == [["a", "b", "c"]]
    assert selects.written == [["a"], ["b"], ["c"]]


@pytest.mark.parametrize("is_relaxed", [True, False])
async def test_what_an_experiment_refuses_is_refused_to_all(is_relaxed: bool):
    error = ExperimentPaused()
    selects = Selects(refuses={"b": error}, is_relaxed=is_relaxed)
    assert await ask(batcher_of(selects), "a", "b", "c") == [error] * 3
    assert len(selects.decided) == 1


@pytest.mark.parametrize("is_large", [True, False])
async def test_a_bug_with_one_round_fails_it_alone(is_large: bool):
    bug = KeyError("b")
    selects = Selects(breaks_on={"b": bug}, is_large=is_large)
    assert await ask(batcher_of(selects), "a", "b", "c") == ["a", bug, "c"]


async def test_what_is_the_services_fault_is_tried_once():
    error = StorageUnavailable()
    selects = Selects(breaks_on={"b": error})
    assert await ask(batcher_of(selects), "a", "b", "c") == [error] * 3
    assert len(selects.decided) == 1


async def test_a_cancelled_request_is_not_decided():
    selects = Selects()
    batcher = batcher_of(selects)
    gone, staying = (
        batcher.select(ONE, DecisionRequest(name, (), True)) for name in ("gone", "staying")
    )
    gone.cancel()
    assert named(await staying) == "staying"
    assert [ids for _, ids in selects.decided] == [["staying"]]


async def test_a_request_cancelled_later_harms_no_other():
    selects = Selects()
    batcher = batcher_of(selects)
    gone, staying = (
        batcher.select(ONE, DecisionRequest(name, (), True)) for name in ("gone", "staying")
    )
    await selects.is_asked.wait()
    gone.cancel()
    assert named(await staying) == "staying"
    assert gone.cancelled()


async def test_log_lines_of_a_batch_name_none_of_its_requests():
    selects = Selects()
    with logs.bound(request_id="the first"):
        await ask(batcher_of(selects), "a", "b")
    assert selects.logged_of == [{}]


async def test_with_traces_every_request_is_decided_within_its_own_span(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(tracing, "is_on", lambda: True)
    selects = Selects()
    with logs.bound(request_id="r-1"):
        assert await ask(batcher_of(selects), "a", "b") == ["a", "b"]
    assert [ids for _, ids in selects.decided] == [["a"], ["b"]]
    assert selects.logged_of == [{"request_id": "r-1"}] * 2
