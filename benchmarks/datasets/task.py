"""A transfer task: labelled source contexts, an unlabeled target pool, and what the report needs."""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from model.rounds import Floats, Integers

Bytes = NDArray[np.uint8]
Contexts = Floats | Bytes

ARRAYS = (
    "source_contexts",
    "source_rewards",
    "target_contexts",
    "target_rewards",
    "test_contexts",
    "test_rewards",
    "source_test_contexts",
    "source_test_rewards",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferTask:
    """Two domains that share their arms.

    Contexts are float32 vectors (n, d), or uint8 images (n, H, W) or (n, H, W, 3) that
    `as_floats` turns into what an encoder reads. Rewards are float32 (n, K) in [0, 1], the reward
    of every arm. `target_rewards` and `test_rewards` score choices and play the target in
    continued training; no zero-shot learner may see them. Without a split of its own the target's
    test set is its pool. The order is the files': a run shuffles with its own seed.
    """

    name: str
    arms: tuple[str, ...]
    exclusive_rewards: bool
    source_contexts: Contexts
    source_rewards: Floats
    target_contexts: Contexts
    target_rewards: Floats
    test_contexts: Contexts
    test_rewards: Floats
    source_test_contexts: Contexts | None = None
    source_test_rewards: Floats | None = None

    def __post_init__(self) -> None:
        for part in ("source", "target", "test", "source_test"):
            self._check(part)

    def _check(self, part: str) -> None:
        contexts, rewards = getattr(self, f"{part}_contexts"), getattr(self, f"{part}_rewards")
        if contexts is None and rewards is None and part == "source_test":
            return
        if rewards.shape != (len(contexts), len(self.arms)) or not len(contexts):
            raise ValueError(f"{self.name}: {part} rewards {rewards.shape} do not fit its contexts")
        if rewards.dtype != np.float32 or not ((rewards >= 0) & (rewards <= 1)).all():
            raise ValueError(f"{self.name}: {part} rewards are not float32 in [0, 1]")
        if self.exclusive_rewards and not _is_one_hot(rewards):
            raise ValueError(f"{self.name}: {part} rewards are not exclusive")
        if _context_shape(contexts) != self.context_shape or not np.isfinite(contexts).all():
            raise ValueError(f"{self.name}: {part} contexts are not finite {self.context_shape}")

    @property
    def context_shape(self) -> tuple[int, ...]:
        """Shape of one context as an encoder reads it: (d,) or (3, H, W)."""
        return _context_shape(self.source_contexts)

    def config_values(self) -> dict[str, object]:
        """The configuration fields that this task fixes."""
        return {
            "arm_count": len(self.arms),
            "context_shape": self.context_shape,
            "exclusive_rewards": self.exclusive_rewards,
        }

    def equals(self, other: "TransferTask") -> bool:
        """Whether all fields are the same, arrays by type and value."""
        return all(
            _same(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)
        )


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return type(one) is type(other) and one == other


def _is_one_hot(rewards: Floats) -> bool:
    return bool(((rewards == 0) | (rewards == 1)).all() and (rewards.sum(axis=1) == 1).all())


def _context_shape(contexts: Contexts) -> tuple[int, ...]:
    if contexts.dtype == np.float32 and contexts.ndim == 2:
        return (contexts.shape[1],)
    if contexts.dtype == np.uint8 and contexts.shape[3:] in ((), (3,)) and contexts.ndim > 2:
        return (3, *contexts.shape[1:3])
    raise ValueError(f"contexts of type {contexts.dtype} and shape {contexts.shape}")


def as_floats(contexts: Contexts) -> Floats:
    """What an encoder reads: vectors as they are; images as (n, 3, H, W) in [-1, 1], grey thrice."""
    if contexts.dtype == np.float32:
        return np.asarray(contexts, np.float32)
    scaled = contexts.astype(np.float32) / np.float32(127.5) - 1
    if scaled.ndim == 3:
        return np.repeat(scaled[:, None], 3, axis=1)
    return np.ascontiguousarray(scaled.transpose(0, 3, 1, 2))


def float_chunks(contexts: Contexts, size: int) -> Iterator[Floats]:
    """`as_floats` over consecutive chunks, so that a large set never lies in memory as floats."""
    for start in range(0, len(contexts), size):
        yield as_floats(contexts[start : start + size])


def one_hot(classes: Integers | Bytes, arm_count: int) -> Floats:
    """Exclusive rewards: 1 for the arm of the class, 0 for the others, (n, K)."""
    return np.eye(arm_count, dtype=np.float32)[np.asarray(classes, np.int64)]


def unsplit_task(
    name: str,
    arms: tuple[str, ...],
    source: tuple[Floats, Floats],
    target: tuple[Floats, Floats],
    exclusive_rewards: bool = True,
) -> TransferTask:
    """A task of two (contexts, rewards) whose target pool is also the test set."""
    return TransferTask(
        name=name,
        arms=arms,
        exclusive_rewards=exclusive_rewards,
        source_contexts=source[0],
        source_rewards=source[1],
        target_contexts=target[0],
        target_rewards=target[1],
        test_contexts=target[0],
        test_rewards=target[1],
    )
