"""Evaluations of a log file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.ope import EvaluationOptions
from service.evaluating.candidates import CandidateMaker, CandidateSpec, UnfitCandidateError
from service.evaluating.evaluation import Evaluation
from service.formats.batches import Batches
from service.formats.files import reading
from service.records import Domain


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a file is read: its format (by default from its name) and the handling of bad lines."""

    format: str | None = None
    skip_bad: bool = False
    domain: Domain = Domain.SOURCE


def evaluate_file(
    path: Path,
    candidates: Sequence[CandidateSpec],
    options: EvaluationOptions,
    how: FileOptions,
    on_progress: Callable[[int, None], None] = lambda done, total: None,
) -> dict[str, Any]:
    """The JSON-compatible result of one pass over the file; `on_progress` gets the rounds that are read."""
    with reading(path, how.format, how.skip_bad) as reader:
        batches = Batches(reader.header, how.domain)
        maker = CandidateMaker(reader.header, how.domain, None, batches.segments)
        for candidate in candidates:
            if candidate.kind == "version":
                raise UnfitCandidateError("a version belongs to an experiment, not to a file")
        made = {each.name: maker.make(each) for each in candidates}
        evaluation = Evaluation(reader.header, made, options, how.domain)
        done = 0
        for batch in batches.of(reader):
            evaluation.add(batch)
            on_progress(done := done + len(batch), None)
        bad = [{"line": each.number, "reason": each.reason} for each in reader.first_bad]
        return {
            "log": path.name,
            "bad_lines": reader.bad_count,
            "first_bad_lines": bad,
            "unrewarded": batches.passed_count,
            **evaluation.result(),
        }
