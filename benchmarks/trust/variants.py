"""Tasks changed so that an estimate of the target reward may fail."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.datasets.task import TransferTask
from model.randomness import generator
from model.rounds import Floats, Integers

Alter = Callable[[TransferTask, np.random.Generator], TransferTask]
SHIFTED_SHARE, OTHER_SHARE = 0.9, 0.4  # of one arm, in the two domains


def unchanged(task: TransferTask, rng: np.random.Generator) -> TransferTask:
    """The task itself."""
    return task


def with_noise(task: TransferTask, rng: np.random.Generator) -> TransferTask:
    """The target's columns, each shuffled by itself: contexts carry no information."""
    columns = task.target_contexts.reshape(len(task.target_contexts), -1)
    shuffled = np.stack([rng.permutation(column) for column in columns.T], axis=1)
    noise = shuffled.reshape(task.target_contexts.shape)
    return replace(
        task, target_contexts=noise, test_contexts=noise, test_rewards=task.target_rewards
    )


def without_an_arm(task: TransferTask, rng: np.random.Generator) -> TransferTask:
    """The source has no context whose best arm is the target's second most frequent one."""
    counts = np.bincount(task.target_rewards.argmax(axis=1), minlength=len(task.arms))
    absent = int(np.argsort(counts)[-2])
    return _rows(task, source=np.flatnonzero(task.source_rewards.argmax(axis=1) != absent))


def with_permuted_arms(task: TransferTask, rng: np.random.Generator) -> TransferTask:
    """Each arm pays on the target what another one should: what the source teaches is wrong there."""
    order = rng.permutation(len(task.arms))
    other = np.empty_like(order)
    other[order] = np.roll(order, 1)
    return replace(
        task,
        target_rewards=task.target_rewards[:, other],
        test_rewards=task.test_rewards[:, other],
    )


def with_shifted_arms(
    task: TransferTask, rng: np.random.Generator, *, is_target: bool
) -> TransferTask:
    """One arm is best for 90 % of one domain and for 40 % of the other."""
    shares = [
        np.bincount(rewards.argmax(axis=1), minlength=len(task.arms)) / len(rewards)
        for rewards in (task.source_rewards, task.target_rewards)
    ]
    arm = int(np.minimum(*shares).argmax())
    wanted = (OTHER_SHARE, SHIFTED_SHARE) if is_target else (SHIFTED_SHARE, OTHER_SHARE)
    source = _resampled(task.source_rewards, arm, wanted[0], rng)
    target = _resampled(task.target_rewards, arm, wanted[1], rng)
    return _rows(task, source=source, target=target)


VARIANTS: dict[str, Alter] = {
    "plain": unchanged,
    "noise": with_noise,
    "permuted": with_permuted_arms,
    "new arm": without_an_arm,
    "target 90 %": partial(with_shifted_arms, is_target=True),
    "source 90 %": partial(with_shifted_arms, is_target=False),
}


def altered(task: TransferTask, variant: str, seed: int) -> TransferTask:
    """A variant of a task; the seed decides which rows are drawn."""
    return VARIANTS[variant](task, generator(seed, "variant", variant, task.name))


def _resampled(rewards: Floats, arm: int, share: float, rng: np.random.Generator) -> Integers:
    """As many rows as there are, so that the arm is best for this share of them."""
    best = rewards.argmax(axis=1)
    with_arm, others = np.flatnonzero(best == arm), np.flatnonzero(best != arm)
    count = min(len(with_arm) / share, len(others) / (1 - share))
    chosen = [
        rng.permutation(with_arm)[: int(count * share)],
        rng.permutation(others)[: int(count * (1 - share))],
    ]
    return rng.permutation(np.concatenate(chosen))


def _rows(
    task: TransferTask, source: Integers | None = None, target: Integers | None = None
) -> TransferTask:
    """Some rows of a task; a target that is changed is tested on itself."""
    if source is not None:
        task = replace(
            task,
            source_contexts=task.source_contexts[source],
            source_rewards=task.source_rewards[source],
        )
    if target is not None:
        contexts, rewards = task.target_contexts[target], task.target_rewards[target]
        task = replace(
            task,
            target_contexts=contexts,
            target_rewards=rewards,
            test_contexts=contexts,
            test_rewards=rewards,
        )
    return task
