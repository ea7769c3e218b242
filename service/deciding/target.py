"""Decisions of the frozen target policy; it learns nothing and may abstain."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec import Raw, Struct
from msgspec.json import Encoder

from model import Booleans, Floats, Policy, TargetSelection
from service.codec.target_contexts import TargetRows
from service.deciding.long_work import MOST_ARMS_ON_LOOP, LongWork
from service.deciding.policies import Served
from service.deciding.request_limits import RequestLimits
from service.deciding.scorer import CPU, Placement, fits_loop
from service.deciding.uploads import Stored, Uploading
from service.errors import InvalidRequest
from service.experiment_spec import ExperimentSpec
from service.metrics import Metrics
from service.ops import tracing

T = TypeVar("T")
_encode = Encoder().encode

ARMS_A_SLICE = 100_000  # of a pass: as many rows as a request may have, if they have 100 arms


class TargetDecision(Struct, gc=False):
    """One answer as JSON; its numbers are always the policy's, even if it abstained.

    `arm` is the encoded text of two fields, the arm and its `probabilities`. Nearly all rows of an arm
    share this text, which makes encoding a thousand rows a fifth faster.
    """

    arm: Raw
    mean: float
    bonus: float
    transfer_confidence: float
    abstained: bool = False


class TargetAnswer(NamedTuple):
    """The policy's selection for each group of contexts, and the stored contexts if requested."""

    spec: ExperimentSpec
    groups: Sequence[TargetRows]
    selections: Sequence[TargetSelection]
    floor: float | None
    stored: Stored | None

    def parts(self) -> Iterator["TargetAnswer"]:
        """The answer in the order of the request, in parts whose encoding takes milliseconds.

        It is one part if its groups are not in that order.
        """
        rows = chain.from_iterable(group.rows for group in self.groups)
        if any(place != row for place, row in enumerate(rows)):
            yield self
            return
        for group, selection in zip(self.groups, self.selections, strict=True):
            yield self._replace(groups=[group], selections=[selection])

    def json_parts(self) -> Iterator[bytes]:
        """The decisions of each part as JSON, without the brackets of their list."""
        for part in self.parts():
            yield _encode(part.decisions())[1:-1]

    def decisions(self) -> list[TargetDecision]:
        """The answers in the order of the request."""
        parts = [
            (group.rows, _decisions(self.spec, group, selection, self.floor))
            for group, selection in zip(self.groups, self.selections, strict=True)
        ]
        return _in_order(parts)

    def table(self) -> np.ndarray:
        """The same as rows of `table_type`, with arms as numbers, for clients that want npy."""
        if not self.spec.arms:
            raise InvalidRequest("A table needs an experiment with declared arms.")
        parts = [
            (group.rows, _table(self.spec, group, selection, self.floor))
            for group, selection in zip(self.groups, self.selections, strict=True)
        ]
        if len(parts) == 1:
            return parts[0][1]
        order = np.argsort(np.concatenate([rows for rows, _ in parts]))
        return np.asarray(np.concatenate([table for _, table in parts])[order])

    def abstained_count(self) -> int:
        """How often the policy abstained."""
        if self.floor is None:
            return 0
        return sum(int((each.confidence < self.floor).sum()) for each in self.selections)


def table_type(arm_count: int) -> np.dtype[np.void]:
    """A row of the table; `arm` is the index of the declared arm, -1 for none."""
    return np.dtype(
        [
            ("arm", "<i4"),
            ("abstained", "?"),
            ("mean", "<f4"),
            ("bonus", "<f4"),
            ("transfer_confidence", "<f8"),
            ("probabilities", "<f8", (arm_count,)),
        ]
    )


class TargetSelecting:
    """Answers for target contexts; it writes nothing but contexts, if requested."""

    def __init__(
        self,
        uploading: Uploading,
        metrics: Metrics,
        limits: RequestLimits,
        long_work: LongWork,
        placement: Placement | None = None,
    ) -> None:
        self._limits = limits
        self._long_work = long_work
        self._uploading = uploading
        self._metrics = metrics
        self._placement = placement or Placement()

    async def select(
        self,
        served: Served,
        groups: Sequence[TargetRows],
        floor: float | None,
        store_as: str | None,
        encode: Callable[[TargetAnswer], Iterable[T]],
    ) -> tuple[TargetAnswer, list[T]]:
        """One decision for each context, and what `encode` makes of them, part by part.

        With `store_as`, the contexts are stored under that request id. Raises `BatchTooLarge`.
        """
        count = sum([len(group.rows) for group in groups])
        arm_count = sum([len(group.rows) * len(group.arms) for group in groups])
        if not fits_loop(served.policy, count, arm_count):
            self._limits.check_contexts(served.spec, served.policy.config, groups)
        if arm_count <= MOST_ARMS_ON_LOOP:
            answer = await self._answer(served, groups, floor, store_as)
            return answer, list(encode(answer))
        async with self._long_work.admitted():
            answer = await self._answer(served, sliced(served.spec, groups), floor, store_as)
            return answer, await self._long_work.all(encode(answer))

    async def _answer(
        self,
        served: Served,
        groups: Sequence[TargetRows],
        floor: float | None,
        store_as: str | None,
    ) -> TargetAnswer:
        count = sum([len(group.rows) for group in groups])
        with tracing.span("score", contexts=count):
            selections = [
                await self.with_policy(served, partial(_scored, served.spec, group))
                for group in groups
            ]
        stored = None
        if store_as is not None:
            contexts = chosen_inputs(served.spec, groups, selections)
            stored = await self._uploading.store(served, store_as, contexts)
        answer = TargetAnswer(served.spec, groups, selections, floor, stored)
        name, abstained = served.experiment.name, answer.abstained_count()
        self._metrics.count_target_selections(name, count, abstained)
        return answer

    async def with_policy(self, served: Served, work: Callable[[Policy], Awaitable[T]]) -> T:
        """What `work` makes of the policy; on the CPU if the device is lost."""
        try:
            return await work(self._placement.usable(served.policy))
        except RuntimeError as error:
            if not self._placement.is_lost_by(error):
                raise
        return await work(self._placement.usable(served.policy))


async def _scored(spec: ExperimentSpec, group: TargetRows, policy: Policy) -> TargetSelection:
    # Requests are not joined: batches of other sizes round differently, and the same file scored
    # offline must give the same bits.
    count = len(group.rows)
    if policy.device.type == CPU and fits_loop(policy, count, count * len(group.arms)):
        return selected(policy, spec, group)
    return await asyncio.to_thread(selected, policy, spec, group)


def sliced(spec: ExperimentSpec, groups: Sequence[TargetRows]) -> list[TargetRows]:
    """The groups in slices of bounded size, which are scored each in a pass of its own.

    Their sizes depend on the experiment alone, as passes of other sizes round differently.
    """
    return [piece for group in groups for piece in _slices(spec, group)]


def _slices(spec: ExperimentSpec, group: TargetRows) -> Iterator[TargetRows]:
    size = max(1, ARMS_A_SLICE // len(group.arms if spec.is_per_arm else spec.arms))
    for start in range(0, len(group.rows), size):
        end = start + size
        yield TargetRows(group.arms, group.contexts[start:end], group.rows[start:end])


def selected(policy: Policy, spec: ExperimentSpec, group: TargetRows) -> TargetSelection:
    """The policy's selection for a group of contexts."""
    return policy.select_target(group.contexts, _eligible(spec, group))


def chosen_inputs(
    spec: ExperimentSpec, groups: Sequence[TargetRows], selections: Sequence[TargetSelection]
) -> Floats:
    """What the encoder is given of each row, (n, *shape): the shared context, or the chosen arm's."""
    parts = [
        (group.rows, _chosen(spec, group, selection))
        for group, selection in zip(groups, selections, strict=True)
    ]
    return np.stack(_in_order(parts))


def _in_order(parts: Sequence[tuple[Sequence[int], Iterable[T]]]) -> list[T]:
    if len(parts) == 1:
        return list(parts[0][1])
    placed = {row: item for rows, items in parts for row, item in zip(rows, items, strict=True)}
    return [placed[row] for row in range(len(placed))]


def _decisions(
    spec: ExperimentSpec, group: TargetRows, selection: TargetSelection, floor: float | None
) -> list[TargetDecision]:
    columns, fallback = _columns(spec, group), _fallback(spec, group)
    # `map` over all rows is faster than a loop.
    made = list(
        map(
            TargetDecision,
            _arms_with_probabilities(selection, columns),
            _of_chosen(selection.scores.mean, selection).tolist(),
            _of_chosen(selection.scores.bonus, selection).tolist(),
            selection.confidence.tolist(),
        )
    )
    for row in [] if floor is None else np.flatnonzero(selection.confidence < floor).tolist():
        made[row].arm = _with_probabilities(fallback, columns, selection.probabilities[row])
        made[row].abstained = True
    return made


def _table(
    spec: ExperimentSpec, group: TargetRows, selection: TargetSelection, floor: float | None
) -> np.ndarray:
    count = len(selection.arms)
    columns = _columns(spec, group)
    places = np.full(selection.probabilities.shape[1], -1, dtype=np.int32)
    places[list(columns.values())] = [spec.arm_indexes[arm] for arm in columns]
    table = np.zeros(count, table_type(len(spec.arms)))
    table["arm"] = places[selection.arms]
    table["mean"] = _of_chosen(selection.scores.mean, selection)
    table["bonus"] = _of_chosen(selection.scores.bonus, selection)
    table["transfer_confidence"] = selection.confidence
    is_known = places >= 0
    table["probabilities"][:, places[is_known]] = selection.probabilities[:, is_known]
    if floor is not None:
        fallback = _fallback(spec, group)
        table["abstained"] = selection.confidence < floor
        table["arm"][table["abstained"]] = -1 if fallback is None else spec.arm_indexes[fallback]
    return table


def _arms_with_probabilities(selection: TargetSelection, columns: dict[str, int]) -> list[Raw]:
    """The encoded arm and probabilities of each row; without ties they are encoded once for each arm."""
    names = {column: arm for arm, column in columns.items()}
    certain = np.empty(selection.probabilities.shape[1], dtype=object)
    for column in np.flatnonzero(np.bincount(selection.arms)).tolist():
        certain[column] = _certain(names[column], tuple(columns))
    found: list[Raw] = certain.take(selection.arms).tolist()
    for row in selection.tied.tolist():
        chosen = names[int(selection.arms[row])]
        found[row] = _with_probabilities(chosen, columns, selection.probabilities[row])
    return found


def _certain(chosen: str, arms: tuple[str, ...]) -> Raw:
    return _two_fields(chosen, {arm: float(arm == chosen) for arm in arms})


def _with_probabilities(arm: str | None, columns: dict[str, int], chances: np.ndarray) -> Raw:
    found = chances[list(columns.values())].tolist()
    return _two_fields(arm, dict(zip(columns, found, strict=True)))


def _two_fields(arm: str | None, probabilities: dict[str, float]) -> Raw:
    return Raw(b'%b,"probabilities":%b' % (_encode(arm), _encode(probabilities)))


def _of_chosen(values: np.ndarray, selection: TargetSelection) -> np.ndarray:
    """The values (n,) of the chosen arms out of (n, K); flat indexes are the fastest way."""
    firsts = np.arange(0, values.size, values.shape[1])
    return values.ravel().take(firsts + selection.arms)


def _columns(spec: ExperimentSpec, group: TargetRows) -> dict[str, int]:
    """The selection's columns of the offered arms."""
    if spec.is_per_arm:
        return {arm: column for column, arm in enumerate(group.arms)}
    return {arm: spec.arm_indexes[arm] for arm in group.arms}


def _eligible(spec: ExperimentSpec, group: TargetRows) -> Booleans | None:
    if spec.is_per_arm or len(group.arms) == len(spec.arms):
        return None
    mask = np.zeros((len(group.rows), len(spec.arms)), dtype=np.bool_)
    mask[:, list(_columns(spec, group).values())] = True
    return mask


def _fallback(spec: ExperimentSpec, group: TargetRows) -> str | None:
    """The declared fallback arm, if it is offered."""
    return spec.fallback_arm if spec.fallback_arm in group.arms else None


def _chosen(spec: ExperimentSpec, group: TargetRows, selection: TargetSelection) -> Floats:
    """The encoder's input of each row: the shared context, or the chosen arm's."""
    if not spec.is_per_arm:
        return group.contexts
    return np.asarray(group.contexts[np.arange(len(selection.arms)), selection.arms])
