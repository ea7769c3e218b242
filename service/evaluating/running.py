"""Evaluations of an experiment's log: read page by page, computed in a thread."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model import Domain
from model.ope import EvaluationOptions, LoggedRounds
from service.errors import UnknownSnapshot
from service.evaluating.candidates import (
    CandidateMaker,
    CandidateSpec,
    Made,
    UnfitCandidateError,
)
from service.evaluating.evaluation import Evaluation
from service.evaluating.experiment_log import (
    decisions_and_contexts_of,
    decisions_of,
    header_of,
    is_imported,
    weight_bound,
)
from service.evaluating.request import EvaluationRequest
from service.evaluating.target_sample import TargetSample
from service.experiment_spec import ExperimentSpec
from service.formats.batches import Batches
from service.records import Experiment
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots

# Called after each page with the events done and in total; raises to stop.
Progress = Callable[[int, int], Awaitable[None]]


async def _ignore(done: int, total: int) -> None:
    """Do nothing."""


@dataclass(frozen=True, slots=True)
class EvaluationStores:
    """The stores that evaluations read."""

    experiments: Experiments
    event_log: EventLog
    snapshots: Snapshots


class ExperimentEvaluation:
    """Runs one request over an experiment's log, up to its last offset at the start."""

    def __init__(
        self, stores: EvaluationStores, experiment: Experiment, request: EvaluationRequest
    ) -> None:
        self._stores = stores
        self._experiment = experiment
        self._request = request
        self._spec = ExperimentSpec.of(experiment)
        self._header = header_of(self._spec)
        self._batches = Batches(self._header, request.domain)

    async def run(self, progress: Progress = _ignore) -> dict[str, Any]:
        blobs = await self._blobs()
        bound = await self._bound()
        evaluation = await asyncio.to_thread(self._prepared, blobs, bound)
        total = self._experiment.head_offset
        # Stored target contexts have no rewards, so a target evaluation cannot use them.
        is_source = self._request.domain is Domain.SOURCE
        read = decisions_and_contexts_of if is_source else decisions_of
        async for page in read(self._experiment, self._stores.event_log, total):
            for offset, decision in page:
                if (batch := self._batches.add(decision, offset)) is not None:
                    await asyncio.to_thread(evaluation.add, batch)
            if page:
                await progress(page[-1][0], total)
        await self._add_rest(evaluation, self._batches.rest())
        found = await asyncio.to_thread(evaluation.result)
        await progress(total, total)
        return {
            "experiment": self._spec.name,
            "offset": total,
            "reward_range": self._spec.reward_range,
            "unrewarded": self._batches.passed_count,
            **found,
        }

    async def _add_rest(self, evaluation: Evaluation, rest: LoggedRounds | None) -> None:
        if rest is not None:
            await asyncio.to_thread(evaluation.add, rest)

    async def _bound(self) -> float | None:
        """The bound on weights; None for imported rounds, whose propensities are arbitrary."""
        imported = await is_imported(self._experiment, self._stores.event_log)
        return None if imported else weight_bound(self._spec)

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

    def _prepared(self, blobs: Mapping[int, bytes], bound: float | None) -> Evaluation:
        request = self._request
        maker = CandidateMaker(self._header, request.domain, self._spec, self._batches.segments)
        made = {each.name: self._made(maker, each, blobs) for each in request.candidates}
        sample = TargetSample(blobs.get(0), self._header.is_per_arm) if request.target else None
        options = EvaluationOptions(request.confidence, bound, request.seed)
        return Evaluation(self._header, made, options, request.domain, sample)

    def _made(
        self, maker: CandidateMaker, wanted: CandidateSpec, blobs: Mapping[int, bytes]
    ) -> Made:
        if wanted.kind == "system" and self._request.domain is Domain.TARGET:
            raise UnfitCandidateError(
                "a system learns from the source: evaluate it in the source domain"
            )
        return maker.make(wanted, blobs.get(wanted.version or 0))
