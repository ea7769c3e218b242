import asyncio
from typing import Any

import numpy as np
import pytest

from model.config import BanditConfig
from model.learner import Learner
from model.policy import Policy
from model.rounds import Domain, Selection
from service.errors import Overloaded
from service.scorer import Scorer


class CountingPolicy:
    """A policy that remembers the batches it was asked for."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.batches: list[int] = []

    def select_many(self, contexts: Any, *rest: Any) -> Selection:
        self.batches.append(len(contexts))
        return self._policy.select_many(contexts, *rest)


@pytest.fixture
def policy() -> Any:
    config = BanditConfig(arm_count=3, context_shape=(4,), encoder="identity")
    return CountingPolicy(Learner(config, seed=1).policy())


def contexts(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


async def test_requests_that_wait_together_share_one_pass(policy):
    scorer = Scorer()
    rows = contexts(5)
    asked = [scorer.select(policy, Domain.SOURCE, rows[i : i + 1], [f"d-{i}"]) for i in range(5)]
    answers = await asyncio.gather(*asked)
    assert policy.batches == [5]
    for i, answer in enumerate(answers):
        alone = policy.select_many(rows[i : i + 1], Domain.SOURCE, [f"d-{i}"])
        assert answer.arms.tolist() == alone.arms.tolist()
        assert np.array_equal(answer.probabilities, alone.probabilities)


async def test_domains_and_masks_are_not_mixed(policy):
    scorer = Scorer()
    mask = np.array([[True, False, True]])
    answers = await asyncio.gather(
        scorer.select(policy, Domain.SOURCE, contexts(1), ["a"]),
        scorer.select(policy, Domain.TARGET, contexts(1), ["b"]),
        scorer.select(policy, Domain.SOURCE, contexts(1), ["c"], mask),
    )
    assert policy.batches == [1, 1, 1]
    assert answers[2].probabilities[0, 1] == 0.0


async def test_poisoned_request_fails_alone(policy):
    scorer = Scorer()
    poison = np.full((1, 4), np.nan, dtype=np.float32)
    good, bad, other = await asyncio.gather(
        scorer.select(policy, Domain.SOURCE, contexts(2), ["a", "b"]),
        scorer.select(policy, Domain.SOURCE, poison, ["c"]),
        scorer.select(policy, Domain.SOURCE, contexts(1), ["d"]),
        return_exceptions=True,
    )
    assert isinstance(good, Selection)
    assert isinstance(bad, ValueError)
    assert isinstance(other, Selection)


async def test_caller_that_went_away_is_not_scored(policy):
    scorer = Scorer()
    gone = asyncio.ensure_future(scorer.select(policy, Domain.SOURCE, contexts(4), list("abcd")))
    stays = asyncio.ensure_future(scorer.select(policy, Domain.SOURCE, contexts(1), ["e"]))
    asyncio.get_running_loop().call_soon(gone.cancel)
    await asyncio.gather(gone, stays, return_exceptions=True)
    assert stays.result().arms.shape == (1,)


async def test_more_than_may_wait_is_refused_at_once(policy):
    scorer = Scorer(max_waiting=2)
    asked = [scorer.select(policy, Domain.SOURCE, contexts(1), [str(i)]) for i in range(3)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(answer, Overloaded) for answer in answers) == 1
    later = await scorer.select(policy, Domain.SOURCE, contexts(1), ["later"])
    assert later.arms.shape == (1,)


async def test_device_with_a_thread_of_its_own_gives_the_same_answers(policy):
    scorer = Scorer(
        device="cuda"
    )  # the thread is the scorer's; the policy's arrays stay on the CPU
    answers = await asyncio.gather(
        *(scorer.select(policy, Domain.SOURCE, contexts(1, i), [str(i)]) for i in range(3))
    )
    await scorer.close()
    assert policy.batches == [3]
    assert [answer.arms.shape for answer in answers] == [(1,)] * 3
