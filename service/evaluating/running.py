"""Evaluations of an experiment's log: read page by page, computed in a thread."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from service.errors import UnknownSnapshot
from service.evaluating.candidates import UnfitCandidateError
from service.evaluating.experiment_log import is_imported, weight_bound
from service.evaluating.plan import EvaluationPlan
from service.evaluating.request import EvaluationRequest
from service.experiment_spec import ExperimentSpec
from service.records import Experiment
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots

# Called after each page with the events done and in total; raises to stop.
Progress = Callable[[int, int], Awaitable[None]]


async def ignore(done: int, total: int) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class EvaluationStores:
    """The stores that evaluations read."""

    experiments: Experiments
    event_log: EventLog
    snapshots: Snapshots


async def evaluated_here(
    plan: EvaluationPlan, event_log: EventLog, progress: Progress = ignore
) -> dict[str, Any]:
    """One pass over the log for all candidates."""
    batches = plan.batches()
    evaluation = await asyncio.to_thread(plan.evaluation, batches)
    total = plan.experiment.head_offset
    for ends in plan.ranges():
        async for offset, rounds in plan.rounds(event_log, *ends, batches):
            if rounds is not None:
                await asyncio.to_thread(evaluation.add, rounds)
            await progress(offset, total)
    found = await asyncio.to_thread(evaluation.result)
    await progress(total, total)
    return plan.result(found, batches.passed_count)


class ExperimentEvaluation:
    """Runs one request over an experiment's log, up to its last offset at the start."""

    def __init__(
        self, stores: EvaluationStores, experiment: Experiment, request: EvaluationRequest
    ) -> None:
        self._stores = stores
        self._experiment = experiment
        self._request = request

    async def run(self, progress: Progress = ignore) -> dict[str, Any]:
        return await evaluated_here(await self.plan(), self._stores.event_log, progress)

    async def plan(self) -> EvaluationPlan:
        """The request with the snapshots that it names."""
        blobs, bound = await self._blobs(), await self._bound()
        return EvaluationPlan(self._experiment, self._request, blobs, bound)

    async def _bound(self) -> float | None:
        """The bound on weights; None for imported rounds, whose propensities are arbitrary."""
        imported = await is_imported(self._experiment, self._stores.event_log)
        return None if imported else weight_bound(ExperimentSpec.of(self._experiment))

    async def _blobs(self) -> dict[int, bytes]:
        """The snapshots of all requested versions, and the newest one under 0."""
        found: dict[int, bytes] = {}
        experiment_id = self._experiment.experiment_id
        for candidate in self._request.candidates:
            if candidate.version is not None:
                found[candidate.version] = await self._blob(candidate.version)
        if self._request.target:
            newest = await self._stores.snapshots.latest(experiment_id)
            if newest is not None and newest.is_intact:
                found[0] = newest.blob
        return found

    async def _blob(self, version: int) -> bytes:
        try:
            stored = await self._stores.snapshots.get(self._experiment.experiment_id, version)
        except UnknownSnapshot as error:
            raise UnfitCandidateError(
                f"version {version}: it does not exist or was pruned"
            ) from error
        if not stored.is_intact:
            raise UnfitCandidateError(f"version {version}: its stored bytes are damaged")
        return stored.blob
