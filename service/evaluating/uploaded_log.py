"""Evaluations of log files that callers send, within the limits of experiments."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal, NamedTuple

from model.ope import EvaluationOptions
from service.errors import InvalidRequest
from service.evaluating.candidates import CandidateSpec, log_spec, parsed
from service.evaluating.file_log import FileOptions, evaluate_file
from service.experiment_spec import ExperimentSpec
from service.formats.files import reading
from service.limits import BudgetLimits
from service.records import Domain

# Text that is read line by line: a compressed file could be of any size once it is read.
FORMATS = ("jsonl", "dsjson", "csv")
SIZING_METHOD = "linucb"  # it has A and b for each arm, as the reward model of an evaluation has

# One file after the other, so that evaluations leave the other cores to requests.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="evaluated-files")


class UploadedLog(NamedTuple):
    """What is asked of a file; candidates are written as on the command line."""

    candidates: Sequence[str]
    format: str
    confidence: float = 0.95
    domain: Literal["source", "target"] = "source"
    min_propensity: float | None = None
    seed: int = 0
    skip_bad: bool = False


async def evaluate_upload(path: Path, asked: UploadedLog, limits: BudgetLimits) -> dict[str, Any]:
    """The result, as of `daband evaluate --log`; `InvalidRequest` says what is wrong with the file."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(_THREAD, _evaluated, path, asked, limits)


def _evaluated(path: Path, asked: UploadedLog, limits: BudgetLimits) -> dict[str, Any]:
    how = FileOptions(asked.format, asked.skip_bad, Domain(asked.domain))
    bound = None if asked.min_propensity is None else 1.0 / asked.min_propensity
    try:
        candidates = [parsed(each) for each in dict.fromkeys(asked.candidates)]
        _check(path, candidates, asked, limits)
        options = EvaluationOptions(asked.confidence, bound, asked.seed)
        return evaluate_file(path, candidates, options, how)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _check(
    path: Path, candidates: Sequence[CandidateSpec], asked: UploadedLog, limits: BudgetLimits
) -> None:
    """Refuse what would take more memory than an experiment may."""
    with reading(path, asked.format) as reader:
        spec = log_spec(reader.header)
    methods = [(each.method or "", each.config) for each in candidates if each.kind == "system"]
    for method, config in [(SIZING_METHOD, {}), *methods]:
        wanted: ExperimentSpec = spec.changed(method, config)
        wanted.check()
        wanted.check_budget(limits)
    if any(each.kind == "file" for each in candidates):
        raise InvalidRequest("A policy file can only be evaluated on the command line.")
