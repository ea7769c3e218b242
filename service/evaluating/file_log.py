"""Evaluations of a log file."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model.ope import EvaluationOptions
from service.evaluating.candidates import CandidateMaker, CandidateSpec, UnfitCandidateError
from service.evaluating.evaluation import Evaluation, Valued
from service.formats.batches import Batches
from service.formats.files import reading
from service.parallel.engine import Engine, result_of
from service.records import Domain

NO_VERSION = "a version belongs to an experiment, not to a file"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """How a file is read: its format (by default from its name) and the handling of bad lines.

    `title` is what results call a file that has no name of its own.
    """

    format: str | None = None
    skip_bad: bool = False
    domain: Domain = Domain.SOURCE
    title: str | None = None


def valued_alone(
    path: Path, candidate: CandidateSpec, options: EvaluationOptions, how: FileOptions
) -> Valued:
    """Evaluate one candidate on the whole file."""
    found = evaluate_file(path, [candidate], options, how)
    return dict(found["candidates"][0])


def evaluate_file(
    path: Path,
    candidates: Sequence[CandidateSpec],
    options: EvaluationOptions,
    how: FileOptions,
    engine: Engine | None = None,
    on_progress: Callable[[int, None], None] = lambda done, total: None,
) -> dict[str, Any]:
    """The JSON-compatible result of one pass over the file; `on_progress` gets the rounds that are read.

    On an engine each candidate that learns is a piece, with a pass of its own over the same path.
    """
    if any(candidate.kind == "version" for candidate in candidates):
        raise UnfitCandidateError(NO_VERSION)
    learning: dict[str, Future[Valued]] = {}
    if engine is not None:
        for each in candidates:
            if each.learns:
                learning[each.name] = engine.submit(valued_alone, path, each, options, how)
    with reading(path, how.format, how.skip_bad) as reader:
        batches = Batches(reader.header, how.domain)
        maker = CandidateMaker(reader.header, how.domain, None, batches.segments)
        made = {each.name: maker.make(each) for each in candidates if each.name not in learning}
        evaluation = Evaluation(reader.header, made, options, how.domain)
        done = 0
        for batch in batches.of(reader):
            evaluation.add(batch)
            on_progress(done := done + len(batch), None)
        bad = [{"line": each.number, "reason": each.reason} for each in reader.first_bad]
        learned = {name: result_of(future) for name, future in learning.items()}
        return {
            "log": how.title or path.name,
            "bad_lines": reader.bad_count,
            "first_bad_lines": bad,
            "unrewarded": batches.passed_count,
            **evaluation.result(learned),
        }
