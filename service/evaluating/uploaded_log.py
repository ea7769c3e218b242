"""Evaluations of log files that callers send, within the limits of experiments."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from model.ope import EvaluationOptions
from service.errors import InvalidRequest, Overloaded, StorageUnavailable
from service.evaluating.candidates import CandidateMaker, UnfitCandidateError, log_spec
from service.evaluating.file_log import NO_VERSION, FileOptions, evaluate_file
from service.evaluating.jobs import CLAIM_SECONDS, LOST_FILE, Beat, ClaimedJob
from service.evaluating.request import LogFile, StoredRequest
from service.experiment_spec import ExperimentSpec
from service.formats.files import reading
from service.limits import BudgetLimits
from service.records import Evaluation, uuid7
from service.storage.evaluations import Evaluations

# Text that is read line by line: a compressed file could be of any size once it is read.
FORMATS = ("jsonl", "dsjson", "csv")
SIZING_METHOD = "linucb"  # it has A and b for each arm, as the reward model of an evaluation has
MOST_FILES = 16  # on the disk of a process

log = logging.getLogger(__name__)


class _StoppedError(Exception):
    """The job of a file has ended before the file."""


class UploadedLogs:
    """Evaluates the files that this process received, one after the other, as jobs that it holds.

    Other processes do not have a file. If this one ends, its claims expire, and such a job fails.
    """

    def __init__(self, evaluations: Evaluations, limits: BudgetLimits) -> None:
        self._evaluations = evaluations
        self._limits = limits
        self._holder = uuid7()
        # One thread, so that evaluations leave the other cores to requests.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="evaluated-files")
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(
        self, experiment_id: str, wanted: StoredRequest, path: Path, spool: ExitStack
    ) -> Evaluation:
        """The job of a file; `InvalidRequest` says what is wrong with it at once.

        What `spool` holds is left with it until the job ends.
        """
        if len(self._tasks) >= MOST_FILES:
            raise Overloaded
        wanted.check()
        await asyncio.to_thread(_check, path, wanted, self._limits)
        job = await self._evaluations.create_claimed(
            experiment_id, wanted.to_json(), self._holder, CLAIM_SECONDS
        )
        task = asyncio.create_task(self._run(job, wanted, path, spool.pop_all()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    async def close(self) -> None:
        """End all jobs: their files go with the process."""
        await asyncio.sleep(0)  # a task that never began would leave its file
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._thread.shutdown(wait=False)

    async def _run(
        self, job: Evaluation, wanted: StoredRequest, path: Path, spool: ExitStack
    ) -> None:
        with spool:
            try:
                work = partial(self._evaluated, wanted, path)
                await ClaimedJob(self._evaluations, job, self._holder).run(work)
            except StorageUnavailable:
                details = {"action": "evaluation_lost"} | job.log_context()
                log.warning("an evaluation of a file is lost", extra=details)
            except asyncio.CancelledError:
                await self._evaluations.fail(job.evaluation_id, self._holder, LOST_FILE)
                raise

    async def _evaluated(
        self, wanted: StoredRequest, path: Path, _: Evaluation, beat: Beat
    ) -> dict[str, Any]:
        is_over = Event()

        def note(done: int, _: None) -> None:
            if is_over.is_set():
                raise _StoppedError
            beat.note(done, 0)

        how, options = _options(wanted)
        work = partial(evaluate_file, path, wanted.candidates, options, how, on_progress=note)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            is_over.set()  # a cancelled job leaves its thread behind


def _options(wanted: StoredRequest) -> tuple[FileOptions, EvaluationOptions]:
    file = wanted.file or LogFile()
    bound = None if file.min_propensity is None else 1.0 / file.min_propensity
    how = FileOptions(file.format, file.skip_bad, wanted.domain, f"file.{file.format}")
    return how, EvaluationOptions(wanted.confidence, bound, wanted.seed)


def _check(path: Path, wanted: StoredRequest, limits: BudgetLimits) -> None:
    """Refuse what does not fit the file's header, or takes more memory than an experiment may."""
    how, _ = _options(wanted)
    try:
        with reading(path, how.format) as reader:
            header = reader.header
        systems = [each for each in wanted.candidates if each.kind == "system"]
        methods = [(each.method or "", each.config) for each in systems]
        for method, config in [(SIZING_METHOD, {}), *methods]:
            spec: ExperimentSpec = log_spec(header).changed(method, config)
            spec.check()
            spec.check_budget(limits)
        if any(each.kind == "version" for each in wanted.candidates):
            raise UnfitCandidateError(NO_VERSION)
        maker = CandidateMaker(header, wanted.domain, None, {})
        for each in wanted.candidates:
            maker.make(each)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None
