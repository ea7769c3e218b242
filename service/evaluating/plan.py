"""What decides an evaluation of an experiment's log, and the log in ranges that are read one by one."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from model import Domain
from model.ope import EvaluationOptions, LoggedRounds
from service.evaluating.candidates import CandidateMaker, CandidateSpec, Made, UnfitCandidateError
from service.evaluating.evaluation import Evaluation
from service.evaluating.experiment_log import decisions_and_contexts_of, decisions_of, header_of
from service.evaluating.request import EvaluationRequest
from service.evaluating.target_sample import TargetSample
from service.experiment_spec import ExperimentSpec
from service.formats.batches import Batches
from service.formats.records import LogHeader
from service.records import Experiment
from service.storage.events.log import EventLog

RANGE = 1 << 14  # events; batches end with their range, whoever reads it


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """A request with all that it needs beside the log; it may be sent to another process.

    `blobs`: the snapshots of all requested versions, and the newest one under 0. `bound`: the largest
    weight that is possible.
    """

    experiment: Experiment
    request: EvaluationRequest
    blobs: Mapping[int, bytes]
    bound: float | None
    range_size: int = RANGE

    @property
    def spec(self) -> ExperimentSpec:
        return ExperimentSpec.of(self.experiment)

    @property
    def header(self) -> LogHeader:
        return header_of(self.spec)

    @property
    def learning(self) -> tuple[CandidateSpec, ...]:
        """The candidates that learn: each needs the whole log in order."""
        return tuple(each for each in self.request.candidates if each.learns)

    @property
    def fixed(self) -> tuple[CandidateSpec, ...]:
        """The candidates that any range of the log can be judged by."""
        return tuple(each for each in self.request.candidates if not each.learns)

    def of(self, candidates: tuple[CandidateSpec, ...]) -> "EvaluationPlan":
        """The same for some of the candidates, with no other snapshots."""
        versions = {0, *(each.version for each in candidates)}
        blobs = {version: blob for version, blob in self.blobs.items() if version in versions}
        request = msgspec.structs.replace(self.request, candidates=candidates)
        return replace(self, request=request, blobs=blobs)

    def ranges(self) -> list[tuple[int, int]]:
        """The log up to the experiment's last offset, as (after, up_to)."""
        end, size = self.experiment.head_offset, self.range_size
        return [(after, min(after + size, end)) for after in range(0, end, size)]

    def batches(self) -> Batches:
        """What groups the log's decisions."""
        return Batches(self.header, self.request.domain)

    def made(self, batches: Batches) -> dict[str, Made]:
        """The candidates by name."""
        maker = CandidateMaker(self.header, self.request.domain, self.spec, batches.segments)
        return {each.name: self._made(maker, each) for each in self.request.candidates}

    def _made(self, maker: CandidateMaker, wanted: CandidateSpec) -> Made:
        if wanted.learns and self.request.domain is Domain.TARGET:
            raise UnfitCandidateError(
                "a system learns from the source: evaluate it in the source domain"
            )
        return maker.make(wanted, self.blobs.get(wanted.version or 0))

    def evaluation(self, batches: Batches) -> Evaluation:
        """The evaluation before its first round."""
        request, header = self.request, self.header
        sample = TargetSample(self.blobs.get(0), header.is_per_arm) if request.target else None
        options = EvaluationOptions(request.confidence, self.bound, request.seed)
        return Evaluation(header, self.made(batches), options, request.domain, sample)

    async def rounds(
        self, event_log: EventLog, after: int, up_to: int, batches: Batches
    ) -> AsyncIterator[tuple[int, LoggedRounds | None]]:
        """The rounds of a range; after each page of events the offset that was read, without rounds."""
        # Stored target contexts have no rewards, so a target evaluation cannot use them.
        is_source = self.request.domain is Domain.SOURCE
        read = decisions_and_contexts_of if is_source else decisions_of
        async for page in read(self.experiment, event_log, up_to, after):
            for offset, decision in page:
                if (batch := batches.add(decision, offset)) is not None:
                    yield offset, batch
            if page:
                yield page[-1][0], None
        yield up_to, batches.rest()

    def result(self, found: dict[str, Any], unrewarded: int) -> dict[str, Any]:
        """The evaluation's result with what was evaluated."""
        return {
            "experiment": self.spec.name,
            "offset": self.experiment.head_offset,
            "reward_range": self.spec.reward_range,
            "unrewarded": unrewarded,
            **found,
        }
