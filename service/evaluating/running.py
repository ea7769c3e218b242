"""Evaluations of an experiment's log: read page by page, computed in a thread."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from service.errors import UnknownSnapshot
from service.evaluating.candidates import UnfitCandidateError
from service.evaluating.experiment_log import weight_bound
from service.evaluating.plan import EvaluationPlan
from service.evaluating.request import EvaluationRequest
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


async def planned(
    stores: EvaluationStores, experiment: Experiment, request: EvaluationRequest
) -> EvaluationPlan:
    """A request over an experiment's log up to its last offset, with the snapshots that it names."""
    blobs = await _blobs(stores.snapshots, experiment.experiment_id, request)
    bound = await weight_bound(experiment, stores.event_log)
    return EvaluationPlan(experiment, request, blobs, bound)


async def _blobs(
    snapshots: Snapshots, experiment_id: str, request: EvaluationRequest
) -> dict[int, bytes]:
    """The snapshots of all requested versions, and the newest one under 0."""
    found: dict[int, bytes] = {}
    for candidate in request.candidates:
        if candidate.version is not None:
            found[candidate.version] = await _blob(snapshots, experiment_id, candidate.version)
    if request.target:
        newest = await snapshots.latest(experiment_id)
        if newest is not None and newest.is_intact:
            found[0] = newest.blob
    return found


async def _blob(snapshots: Snapshots, experiment_id: str, version: int) -> bytes:
    try:
        stored = await snapshots.get(experiment_id, version)
    except UnknownSnapshot as error:
        raise UnfitCandidateError(f"version {version}: it does not exist or was pruned") from error
    if not stored.is_intact:
        raise UnfitCandidateError(f"version {version}: its stored bytes are damaged")
    return stored.blob
