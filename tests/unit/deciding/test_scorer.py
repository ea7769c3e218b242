import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from model.bandit.policy import Policy
from model.config import BanditConfig
from model.learner import Learner
from model.rounds import Domain, RewardedRound, Selection
from service.deciding.scorer import MOST_ON_LOOP, ROWS_OF_WEIGHTS, Placement, Scorer
from service.errors import Overloaded
from tests.support.waiting import PATIENCE_SECONDS


class CountingPolicy:
    """A policy that remembers the batches it was asked for."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.multiplications = policy.multiplications
        self.batches: list[int] = []
        self.threads: list[int] = []

    def select_many(self, contexts: Any, *rest: Any) -> Selection:
        self.batches.append(len(contexts))
        self.threads.append(threading.get_ident())
        return self._policy.select_many(contexts, *rest)


def learned_policy(seed: int) -> Any:
    """Knows something, so that contexts differ in their scores, and explores often."""
    config = BanditConfig(arm_count=3, context_shape=(4,), encoder="identity", epsilon=0.5)
    learner = Learner(config, seed)
    for number, context in enumerate(contexts(12, seed)):
        learner.observe(
            RewardedRound(number, Domain.SOURCE, context, number % 3, reward=float(number % 2))
        )
    return CountingPolicy(learner.policy())


@pytest.fixture
def policy() -> Any:
    return learned_policy(seed=1)


def contexts(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


def check_is_as_alone(answer: Selection, policy: Any, rows: Any, ids: list[str]) -> None:
    alone = policy.select_many(rows, Domain.SOURCE, ids)
    assert answer.arms.tolist() == alone.arms.tolist()
    assert np.array_equal(answer.probabilities, alone.probabilities)
    for part, part_alone in zip(answer.scores, alone.scores, strict=True):
        np.testing.assert_allclose(part, part_alone, rtol=1e-6)


@pytest.fixture
async def scorer() -> AsyncIterator[Scorer]:
    """With a thread of its own, as for a device; the policies' arrays stay on the CPU."""
    made = Scorer(Placement("cuda"))
    yield made
    await made.close()


async def test_a_small_batch_on_the_cpu_is_scored_at_once(policy):
    received: list[list[int]] = []
    asked = Scorer(on_scoring=received.append).select(
        policy, Domain.SOURCE, contexts(2), ["a", "b"]
    )
    with pytest.raises(StopIteration) as over:
        asked.send(None)
    check_is_as_alone(over.value.value, policy, contexts(2), ["a", "b"])
    assert received == [[2]]


async def test_on_the_cpu_a_large_pass_is_made_in_a_thread(policy: Any):
    policy.multiplications = MOST_ON_LOOP // (1 + ROWS_OF_WEIGHTS)
    scorer = Scorer()
    check_is_as_alone(
        await scorer.select(policy, Domain.SOURCE, contexts(1), ["a"]), policy, contexts(1), ["a"]
    )
    assert policy.threads[0] == threading.get_ident()
    answer = await scorer.select(policy, Domain.SOURCE, contexts(2), ["a", "b"])
    assert policy.threads[-1] != threading.get_ident()
    check_is_as_alone(answer, policy, contexts(2), ["a", "b"])
    await scorer.close()


async def test_requests_that_wait_together_share_one_pass(policy: Any, scorer: Scorer):
    rows = contexts(5)
    asked = [scorer.select(policy, Domain.SOURCE, rows[i : i + 1], [f"d-{i}"]) for i in range(5)]
    answers = await asyncio.gather(*asked)
    assert policy.batches == [5]
    for i, answer in enumerate(answers):
        check_is_as_alone(answer, policy, rows[i : i + 1], [f"d-{i}"])


async def test_every_row_is_drawn_with_its_own_id(policy):
    ids = [str(number) for number in range(40)]
    rows = np.repeat(contexts(1), len(ids), axis=0)
    answer = await Scorer().select(policy, Domain.SOURCE, rows, ids)
    assert len(set(answer.arms.tolist())) > 1
    check_is_as_alone(answer, policy, rows, ids)


async def test_policies_are_not_mixed(policy: Any, scorer: Scorer):
    other = learned_policy(seed=2)
    asked = [scorer.select(each, Domain.SOURCE, contexts(1), ["a"]) for each in (policy, other)]
    answers = await asyncio.gather(*asked)
    assert (policy.batches, other.batches) == ([1], [1])
    for answer, each in zip(answers, (policy, other), strict=True):
        check_is_as_alone(answer, each, contexts(1), ["a"])


async def test_domains_and_masks_are_not_mixed(policy: Any, scorer: Scorer):
    mask = np.array([[True, False, True]])
    answers = await asyncio.gather(
        scorer.select(policy, Domain.SOURCE, contexts(1), ["a"]),
        scorer.select(policy, Domain.TARGET, contexts(1), ["b"]),
        scorer.select(policy, Domain.SOURCE, contexts(1), ["c"], mask),
    )
    assert policy.batches == [1, 1, 1]
    assert answers[2].probabilities[0, 1] == 0.0


async def test_poisoned_request_fails_alone(policy: Any, scorer: Scorer):
    poison = np.full((1, 4), np.nan, dtype=np.float32)
    too_wide = np.zeros((1, 5), dtype=np.float32)
    good, bad, wide, other = await asyncio.gather(
        scorer.select(policy, Domain.SOURCE, contexts(2), ["a", "b"]),
        scorer.select(policy, Domain.SOURCE, poison, ["c"]),
        scorer.select(policy, Domain.SOURCE, too_wide, ["w"]),
        scorer.select(policy, Domain.SOURCE, contexts(1), ["d"]),
        return_exceptions=True,
    )
    assert isinstance(good, Selection)
    assert isinstance(bad, ValueError)
    assert isinstance(wide, ValueError)
    assert isinstance(other, Selection)
    check_is_as_alone(good, policy, contexts(2), ["a", "b"])
    check_is_as_alone(other, policy, contexts(1), ["d"])


async def test_caller_that_went_away_is_not_scored(policy: Any, scorer: Scorer):
    gone = asyncio.ensure_future(scorer.select(policy, Domain.SOURCE, contexts(4), list("abcd")))
    stays = asyncio.ensure_future(scorer.select(policy, Domain.SOURCE, contexts(1), ["e"]))
    asyncio.get_running_loop().call_soon(gone.cancel)
    await asyncio.gather(gone, stays, return_exceptions=True)
    assert stays.result().arms.shape == (1,)
    assert policy.batches == [1]


async def test_closing_finishes_what_waits(policy: Any, scorer: Scorer):
    asked = asyncio.ensure_future(scorer.select(policy, Domain.SOURCE, contexts(1), ["a"]))
    await asyncio.sleep(0)  # it is pending now
    assert policy.batches == []
    await scorer.close()
    assert policy.batches == [1]
    assert (await asked).arms.shape == (1,)


class SlowPolicy:
    """Scores when it may."""

    def __init__(self, policy: Any, may_score: threading.Event) -> None:
        self._policy = policy
        self._may_score = may_score

    def select_many(self, *given: Any) -> Any:
        assert self._may_score.wait(PATIENCE_SECONDS)
        return self._policy.select_many(*given)


async def test_a_caller_that_disconnects_while_a_thread_scores_affects_no_other(policy):
    scorer, may_score = Scorer(Placement("cuda")), threading.Event()
    slow: Any = SlowPolicy(policy, may_score)
    gone, stays = (
        asyncio.ensure_future(scorer.select(slow, Domain.SOURCE, contexts(1), [each]))
        for each in "ab"
    )
    for _ in range(3):
        await asyncio.sleep(0)  # the thread has them
    gone.cancel()
    may_score.set()
    assert (await asyncio.wait_for(stays, PATIENCE_SECONDS)).arms.shape == (1,)
    await scorer.close()
    assert policy.batches == [2]


async def test_more_than_may_wait_is_refused_at_once(policy):
    scorer = Scorer(Placement("cuda"), max_waiting=2)
    asked = [scorer.select(policy, Domain.SOURCE, contexts(1), [str(i)]) for i in range(3)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(answer, Overloaded) for answer in answers) == 1
    later = await scorer.select(policy, Domain.SOURCE, contexts(1), ["later"])
    assert later.arms.shape == (1,)
    await scorer.close()


async def test_passes_over_pending_requests_are_counted(policy):
    received: list[list[int]] = []
    scorer = Scorer(Placement("cuda"), on_scoring=received.append)
    rows, ids = contexts(3), ["a", "b", "c"]
    await asyncio.gather(
        scorer.select(policy, Domain.SOURCE, rows[:2], ids[:2]),
        scorer.select(policy, Domain.SOURCE, rows[2:], ids[2:]),
        scorer.select(policy, Domain.TARGET, rows[:1], ids[:1]),
    )
    await scorer.close()
    assert received[0] == [3, 1]


class LosingPolicy:
    """A policy on a device that is lost with the next call."""

    device = "cuda"

    def __init__(self, config: Any, message: str) -> None:
        self.config = config
        self.calls = 0
        self._message = message

    def select_many(self, *given: Any) -> Any:
        self.calls += 1
        if self.calls > 2:  # it was warmed up once for each domain
            raise RuntimeError(self._message)


def lost_soon(policy: Any, message: str) -> tuple[Placement, Any, list[str]]:
    losses: list[str] = []
    placement = Placement("cuda", lambda: losses.append("lost"))
    losing: Any = LosingPolicy(policy._policy.config, message)
    placed = placement.placed(lambda device: policy._policy if device == "cpu" else losing)
    return placement, placed, losses


async def test_a_lost_device_is_replaced_by_the_cpu_with_the_same_arms(policy):
    placement, placed, losses = lost_soon(policy, "CUDA error: an illegal memory access")
    scorer = Scorer(placement)
    rows, ids = contexts(3), ["a", "b", "c"]
    answers = await asyncio.gather(
        *(scorer.select(placed, Domain.SOURCE, rows[i : i + 1], [ids[i]]) for i in range(3))
    )
    for i, answer in enumerate(answers):
        check_is_as_alone(answer, policy, rows[i : i + 1], [ids[i]])
    asked = placed.calls
    check_is_as_alone(await scorer.select(placed, Domain.SOURCE, rows, ids), policy, rows, ids)
    assert (placed.calls, losses, placement.device) == (asked, ["lost"], "cpu")
    await scorer.close()


async def test_another_error_of_a_device_is_the_callers_and_the_device_stays(policy):
    placement, placed, losses = lost_soon(policy, "CUDA out of memory")
    scorer = Scorer(placement)
    with pytest.raises(RuntimeError, match="out of memory"):
        await scorer.select(placed, Domain.SOURCE, contexts(1), ["a"])
    assert (losses, placement.device) == ([], "cuda")
    await scorer.close()


async def test_a_device_that_is_lost_before_a_policy_is_there_leaves_it_on_the_cpu(policy):
    placement = Placement("cuda")

    def make(device: str) -> Any:
        if device == "cuda":
            raise RuntimeError("CUDA error: device-side assert triggered")
        return policy._policy

    assert placement.placed(make) is policy._policy
    assert placement.device == "cpu"


async def test_what_comes_while_a_device_works_is_joined(policy):
    scorer, may_score = Scorer(Placement("cuda")), threading.Event()
    slow: Any = SlowPolicy(policy, may_score)
    asked = [asyncio.ensure_future(scorer.select(slow, Domain.SOURCE, contexts(1), ["0"]))]
    for _ in range(3):
        await asyncio.sleep(0)  # the thread has it
    for i in range(1, 5):
        asked.append(
            asyncio.ensure_future(scorer.select(slow, Domain.SOURCE, contexts(1), [str(i)]))
        )
        await asyncio.sleep(0)
    may_score.set()
    await asyncio.wait_for(asyncio.gather(*asked), PATIENCE_SECONDS)
    await scorer.close()
    assert policy.batches == [1, 4]


async def test_contexts_and_not_callers_are_counted_while_a_device_works(policy):
    scorer, may_score = Scorer(Placement("cuda"), max_waiting=4), threading.Event()

    class SlowPolicy:
        def select_many(self, *given: Any) -> Any:
            assert may_score.wait(PATIENCE_SECONDS)
            return policy.select_many(*given)

    slow: Any = SlowPolicy()
    asked = asyncio.ensure_future(scorer.select(slow, Domain.SOURCE, contexts(3), list("abc")))
    for _ in range(3):
        await asyncio.sleep(0)
    with pytest.raises(Overloaded):
        await scorer.select(slow, Domain.SOURCE, contexts(2), list("de"))
    may_score.set()
    assert (await asyncio.wait_for(asked, PATIENCE_SECONDS)).arms.shape == (3,)
    await scorer.close()


async def test_a_failure_of_any_kind_is_its_callers_alone(policy: Any, scorer: Scorer):
    class Fragile:
        def select_many(self, given: Any, *rest: Any) -> Any:
            if len(given) > 1 or given[0, 0] == 7:
                raise MemoryError
            return policy.select_many(given, *rest)

    fragile: Any = Fragile()
    seven = contexts(1)
    seven[0, 0] = 7
    good, bad = await asyncio.gather(
        scorer.select(fragile, Domain.SOURCE, contexts(1), ["a"]),
        scorer.select(fragile, Domain.SOURCE, seven, ["b"]),
        return_exceptions=True,
    )
    assert isinstance(good, Selection)
    assert isinstance(bad, MemoryError)
