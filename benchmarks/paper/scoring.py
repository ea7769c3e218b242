"""What a choice of arms is worth, and the greedy arms of a learner or a policy."""

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import combinations
from typing import Any

import numpy as np
import torch

from benchmarks.datasets.task import Contexts, TransferTask, float_chunks
from model.bandit.policy import Policy
from model.learner import Learner
from model.rounds import Domain, Doubles, Floats, Integers

Choose = Callable[[Floats, Domain], Integers]
RECENT = 640  # source rounds over which learning on the source is judged
_AT_ONCE = 2048  # test contexts encoded at once


def by_learner(learner: Learner) -> Choose:
    """The arm with the highest mean under a learner's present encoder."""
    factors = learner.statistics.factors()

    def choose(contexts: Floats, domain: Domain) -> Integers:
        latents = learner.networks.encode(torch.from_numpy(contexts).to(learner.device), domain)
        means = latents.double().cpu().numpy() @ factors.theta_of(domain).T
        return np.asarray(means.argmax(axis=1))

    return choose


def by_policy(policy: Policy) -> Choose:
    """The arm with the highest mean under a frozen policy."""
    return lambda contexts, domain: policy.score_many(contexts, domain).mean.argmax(axis=1)


def chosen_arms(choose: Choose, contexts: Contexts, domain: Domain) -> Integers:
    """The arm of each context, however many there are."""
    return np.concatenate([choose(part, domain) for part in float_chunks(contexts, _AT_ONCE)])


def normalised_reward(arms: Integers, rewards: Floats) -> float:
    """Reward of the chosen arms ÷ reward of the best ones; accuracy where rewards are exclusive."""
    paid = rewards[np.arange(len(arms)), arms]
    return float(paid.sum(dtype=np.float64) / rewards.max(axis=1).sum(dtype=np.float64))


def by_best_arm(arms: Integers, rewards: Floats) -> list[float | None]:
    """`normalised_reward` of the contexts whose best arm is 0, 1, …; None where there are none."""
    best = rewards.argmax(axis=1)
    rows = (np.flatnonzero(best == arm) for arm in range(rewards.shape[1]))
    return [normalised_reward(arms[each], rewards[each]) if len(each) else None for each in rows]


def scores(choose: Choose, task: TransferTask, source_regret: Doubles) -> dict[str, Any]:
    """What the report says of a zero-shot policy. The target's rewards are used for this alone."""
    arms = chosen_arms(choose, task.test_contexts, Domain.TARGET)
    return {
        "target_arms": packed_arms(arms),
        "target": normalised_reward(arms, task.test_rewards),
        "target_per_class": by_best_arm(arms, task.test_rewards),
        "source_test": _source_test(choose, task),
        "source_recent": float(1 - source_regret[-RECENT:].mean()),
    }


def packed_arms(arms: Integers) -> str:
    """Chosen arms as text for a record."""
    return base64.b64encode(zlib.compress(arms.astype("<u4").tobytes(), level=9)).decode()


def agreement(packed: Sequence[str]) -> float | None:
    """How often two runs choose the same arm, over all pairs of runs; None for a single run.

    It needs no reward: runs that differ in their seed alone agree the more, the fewer errors they
    make, so it can choose between recipes.
    """
    runs = [np.frombuffer(zlib.decompress(base64.b64decode(text)), "<u4") for text in packed]
    shares = [float((one == other).mean()) for one, other in combinations(runs, 2)]
    return float(np.mean(shares)) if shares else None


def _source_test(choose: Choose, task: TransferTask) -> float | None:
    if task.source_test_contexts is None or task.source_test_rewards is None:
        return None
    arms = chosen_arms(choose, task.source_test_contexts, Domain.SOURCE)
    return normalised_reward(arms, task.source_test_rewards)


def transfer_signs(learner: Learner) -> dict[str, float] | None:
    """The label-free report of how well the source may carry over."""
    report = learner.transfer()
    return asdict(report) if report else None
