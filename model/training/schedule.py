"""Which encoder update begins next when none is pending: a rule by counts alone.

An update begins by itself at the reward that fills an episode, unless one is pending then. The trainer
begins all others by this rule, or a person does. They are events of the log, because the rewards do not
tell where they began.
"""

from dataclasses import dataclass
from enum import StrEnum

from model.config import BanditConfig, GateRule

TARGET_GROWTH = 4  # new target contexts must be a quarter of those that the last update had


class Cause(StrEnum):
    """Why an update begins that no full episode began."""

    REWARDS = "rewards"
    TARGET_CONTEXTS = "target_contexts"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class ContextCounts:
    """How many contexts of each domain have come."""

    source: int
    target: int


NONE_CAME = ContextCounts(0, 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a learner is: updates that are due, rewards of the episode that is not full, what came."""

    due_updates: int
    rewards_in_episode: int
    rounds_kept: int
    contexts: ContextCounts


@dataclass(frozen=True, slots=True)
class NextUpdate:
    """An update that should begin now; it stands for `covers` of those that are due."""

    cause: Cause
    covers: int


def next_update(
    config: BanditConfig, progress: Progress, seen: ContextCounts | None
) -> NextUpdate | None:
    """The update to begin now, if any.

    `seen`: what had come at the beginning of the last update; None if that is not known, or if there
    was no update.
    """
    if progress.due_updates > 0:
        return NextUpdate(Cause.REWARDS, _covered(config, progress))
    if seen is not None and _has_new_target(config, progress.contexts, seen):
        return NextUpdate(Cause.TARGET_CONTEXTS, covers=0)
    return None


def _covered(config: BanditConfig, progress: Progress) -> int:
    """One; all where updates do not build on each other; also those whose rewards are forgotten."""
    if not config.steps_per_episode or config.gate is GateRule.MANUAL:
        return progress.due_updates
    worthwhile = max(1, progress.rounds_kept // config.episode_length)
    return 1 + max(0, progress.due_updates - worthwhile)


def _has_new_target(config: BanditConfig, now: ContextCounts, seen: ContextCounts) -> bool:
    """Whether many target contexts are new, beside one for each new round of the source.

    Rounds that bring a context of both domains lead to updates by their rewards, late ones too.
    """
    new = (now.target - seen.target) - (now.source - seen.source)
    return new >= max(config.episode_length, seen.target // TARGET_GROWTH)
