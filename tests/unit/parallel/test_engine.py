"""Pieces on an engine: their order, their errors, and what is said if there is no engine."""

import os
import pickle
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
from ray.exceptions import NodeDiedError

from service.errors import (
    DamagedArchive,
    ServiceError,
    StorageUnavailable,
    UnknownExperiment,
    UnknownSnapshot,
)
from service.parallel import opening
from service.parallel.engine import AHEAD, Engine, EngineError
from service.parallel.on_ray import explained, run_here
from service.parallel.opening import EngineOptions, opened_engine
from tests.support.engines import Backwards


def doubled(number: int) -> int:
    if number == 7:
        raise ValueError("seven is refused")
    return 2 * number


def ended(number: int) -> int:
    os._exit(number)


def test_results_come_in_the_order_of_the_pieces_whatever_ends_first():
    executor = Backwards()
    assert list(Engine(executor, 3).in_order(doubled, range(7))) == [0, 2, 4, 6, 8, 10, 12]


def test_only_a_few_pieces_are_begun_ahead():
    executor = Backwards()
    taken: list[int] = []

    def pieces() -> Iterator[int]:
        for number in range(7):
            taken.append(number)
            yield number

    results = Engine(executor, 1).in_order(doubled, pieces())
    assert next(results) == 0
    assert len(taken) == AHEAD
    assert list(results) == [2, 4, 6, 8, 10, 12]
    assert executor.most_waiting == AHEAD


def test_an_error_is_that_of_its_piece_and_ends_the_others():
    executor = Backwards()
    results = Engine(executor, 1).in_order(doubled, [1, 7, 3, 4])
    assert next(results) == 2
    with pytest.raises(ValueError, match="seven is refused"):
        next(results)
    assert all(future.done() for future, _ in executor.begun)


def test_pieces_without_a_reader_are_cancelled():
    executor = Backwards()
    results = Engine(executor, 2).in_order(doubled, range(7))
    next(results)
    executor.submit(doubled, 1)
    results.close()
    waiting: list[Future[int]] = [future for future, _ in executor.begun]
    assert [future.cancelled() for future in waiting] == [False]


def test_threads_and_the_order_of_submission_give_the_same():
    with ThreadPoolExecutor(4) as pool:
        assert list(Engine(pool, 4).in_order(doubled, range(8, 99))) == [*range(16, 198, 2)]


def test_a_process_that_ends_is_named():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        results = Engine(pool, 1).in_order(ended, [1])
        with pytest.raises(EngineError, match="a worker process ended"):
            next(results)


def test_one_worker_is_the_process_that_asks():
    for options in (EngineOptions(), EngineOptions(workers=1)):
        with opened_engine(options) as engine:
            assert engine is None


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (EngineOptions("process", address="127.0.0.1:1"), "--address is for --engine ray"),
        (EngineOptions("ray", workers=2, address="127.0.0.1:1"), "has workers of its own"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: EngineOptions, reason: str):
    with pytest.raises(EngineError, match=reason), opened_engine(options):
        pass


def test_a_missing_extra_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(opening, "find_spec", lambda name: None)
    with pytest.raises(EngineError, match=r"pip install 'daband\[ray\]'"):
        EngineOptions("ray").check()


def test_a_cluster_that_is_not_there_is_named():
    wanted = EngineOptions("ray", address="127.0.0.1:1")
    reason = r"ray: no cluster at 127\.0\.0\.1:1: Connection refused"
    with pytest.raises(EngineError, match=reason), opened_engine(wanted):
        pass


def test_a_task_of_another_version_is_refused():
    _, error = run_here("0.0.0", doubled, (1,), {})
    assert isinstance(error, EngineError)
    assert "this is 0.0.0" in str(error)


def test_what_ray_fails_with_is_one_line():
    found = explained(NodeDiedError("the node died\nand a long story"))
    assert isinstance(found, EngineError)
    assert str(found) == "ray: a piece was lost (NodeDiedError): the node died"


@pytest.mark.parametrize(
    "kind", [DamagedArchive, StorageUnavailable, UnknownExperiment, UnknownSnapshot]
)
def test_errors_come_back_from_other_processes(kind: type[ServiceError]):
    error = kind("what is wrong", errors=[{"pointer": "#/a", "detail": "b"}])
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(again), again.detail, again.members) == (kind, error.detail, error.members)
