"""The target policy alone: frozen, nothing learned, and it may say that it does not know."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import Struct

from model.rounds import Booleans, Floats, TargetSelection
from service.errors import InvalidRequest
from service.metrics import Metrics
from service.policies import Served
from service.uploading import Stored, Uploading

INLINE_ROWS = 16  # more are scored in a thread, beside other requests


@dataclass(frozen=True, slots=True)
class TargetRows:
    """Contexts that share their arms: (n, *shape), or (n, arms, *shape) where arms have their own.

    `rows` are their places in the request.
    """

    arms: tuple[str, ...]
    contexts: Floats
    rows: Sequence[int]


class TargetDecision(Struct):
    """One answer; `probabilities`, `mean` and `bonus` are the policy's, also where it abstained."""

    arm: str | None
    probabilities: dict[str, float]
    mean: float
    bonus: float
    transfer_confidence: float
    abstained: bool


@dataclass(frozen=True, slots=True)
class TargetAnswer:
    """The decisions in the order of the request, and what was stored if that was asked for."""

    decisions: list[TargetDecision]
    stored: Stored | None


class TargetSelecting:
    """Answers for target contexts; the only thing it ever writes are contexts, when asked to."""

    def __init__(self, uploading: Uploading, metrics: Metrics) -> None:
        self._uploading = uploading
        self._metrics = metrics

    async def select(
        self,
        served: Served,
        groups: Sequence[TargetRows],
        floor: float | None,
        store_as: str | None,
    ) -> TargetAnswer:
        """One decision a context; with `store_as`, the contexts are kept under that request id."""
        count = sum(len(group.rows) for group in groups)
        found: list[TargetDecision | None] = [None] * count
        kept: list[Floats | None] = [None] * count
        for group in groups:
            selection = await _selected(served, group)
            decisions = decisions_of(
                selection, _columns(served, group), floor, _fallback(served, group)
            )
            for row, decision in zip(group.rows, decisions, strict=True):
                found[row] = decision
            if store_as is not None:
                for row, context in zip(group.rows, _chosen(served, group, selection), strict=True):
                    kept[row] = context
        decisions = [each for each in found if each is not None]
        stored = None
        if store_as is not None:
            contexts = np.stack([each for each in kept if each is not None])
            stored = await self._uploading.store(served, store_as, contexts)
        abstained = sum(each.abstained for each in decisions)
        self._metrics.count_target_selections(served.experiment.name, count, abstained)
        return TargetAnswer(decisions, stored)


async def _selected(served: Served, group: TargetRows) -> TargetSelection:
    # Requests are not joined here: products over other batches round differently, and the same
    # file scored offline must give the same bits.
    select, eligible = served.policy.select_target, _eligible(served, group)
    try:
        if len(group.rows) <= INLINE_ROWS and served.policy.device.type == "cpu":
            return select(group.contexts, eligible)
        return await asyncio.to_thread(select, group.contexts, eligible)
    except ValueError as error:
        raise InvalidRequest("The model refuses the contexts.") from error


def decisions_of(
    selection: TargetSelection, columns: dict[str, int], floor: float | None, fallback: str | None
) -> list[TargetDecision]:
    """The answers; `columns` are the selection's columns of the arms that are answered for."""
    rows = np.arange(len(selection.arms))
    names = {column: arm for arm, column in columns.items()}
    arms = selection.arms.tolist()
    indexes = list(columns.values())
    said = zip(
        arms,
        selection.probabilities[:, indexes].tolist(),
        selection.scores.mean[rows, selection.arms].tolist(),
        selection.scores.bonus[rows, selection.arms].tolist(),
        selection.confidence.tolist(),
        strict=True,
    )
    least = -1.0 if floor is None else floor
    return [
        TargetDecision(
            fallback if confidence < least else names[arm],
            dict(zip(columns, probabilities, strict=True)),
            mean,
            bonus,
            confidence,
            confidence < least,
        )
        for arm, probabilities, mean, bonus, confidence in said
    ]


def _columns(served: Served, group: TargetRows) -> dict[str, int]:
    if served.spec.is_per_arm:
        return {arm: column for column, arm in enumerate(group.arms)}
    return {arm: served.spec.arm_indexes[arm] for arm in group.arms}


def _eligible(served: Served, group: TargetRows) -> Booleans | None:
    if served.spec.is_per_arm or len(group.arms) == len(served.spec.arms):
        return None
    mask = np.zeros((len(group.rows), len(served.spec.arms)), dtype=np.bool_)
    mask[:, list(_columns(served, group).values())] = True
    return mask


def _fallback(served: Served, group: TargetRows) -> str | None:
    """The declared arm, where it is among those that are offered."""
    return served.spec.fallback_arm if served.spec.fallback_arm in group.arms else None


def _chosen(served: Served, group: TargetRows, selection: TargetSelection) -> Floats:
    """What φ saw of each row: the shared context, or that of the chosen arm."""
    if not served.spec.is_per_arm:
        return group.contexts
    return np.asarray(group.contexts[np.arange(len(selection.arms)), selection.arms])
