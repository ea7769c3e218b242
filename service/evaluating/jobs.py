"""Runs evaluations as jobs: queued ones one at a time, next to the trainer."""

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from service.errors import ServiceError, StorageUnavailable
from service.evaluating.request import stored_request
from service.evaluating.running import EvaluationStores, evaluated_here, planned
from service.records import Evaluation, uuid7
from service.storage.evaluations import Evaluations

CLAIM_SECONDS = 30.0
BEAT_SECONDS = 0.5
LOST_FILE = "Its process has ended or lost the database, and the file with it. Send the file again."

log = logging.getLogger(__name__)


class _StoppedError(Exception):
    """The job was cancelled, or another process took it over."""


class EvaluationJobs:
    """Runs queued evaluations until cancelled; meant for a supervisor."""

    def __init__(
        self, stores: EvaluationStores, evaluations: Evaluations, poll_seconds: float = 0.5
    ) -> None:
        self._stores = stores
        self._evaluations = evaluations
        self._poll_seconds = poll_seconds
        self._holder = uuid7()

    async def run(self) -> None:
        """Claim, evaluate and store jobs; wait if there is none or storage is unavailable."""
        while True:
            try:
                is_idle = not await self.run_next()
            except StorageUnavailable:
                log.warning(
                    "evaluations wait: storage is unavailable", extra={"action": "evaluation_waits"}
                )
                is_idle = True
            if is_idle:
                await asyncio.sleep(self._poll_seconds)

    async def run_next(self) -> bool:
        """Run the oldest waiting job; false if there is none."""
        job = await self._evaluations.claim(self._holder, CLAIM_SECONDS)
        if job is None:
            return False
        await ClaimedJob(self._evaluations, job, self._holder).run(self._result)
        return True

    async def _result(self, job: Evaluation, beat: "Beat") -> dict[str, Any]:
        request = stored_request(job.request)
        if request.file is not None:
            raise ValueError(LOST_FILE)  # the claim of the process that had it has expired
        experiment = await self._stores.experiments.get_by_id(job.experiment_id)
        plan = await planned(self._stores, experiment, request)
        return await evaluated_here(plan, self._stores.event_log, beat.progress)


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    """A job that this process holds."""

    evaluations: Evaluations
    job: Evaluation
    holder: str

    async def run(self, work: Callable[[Evaluation, "Beat"], Awaitable[Mapping[str, Any]]]) -> None:
        """Store the result of the work, or why it failed; only unavailable storage is raised."""
        job = self.job
        beat = Beat(self.evaluations, job, self.holder)
        try:
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(beat.keep())
                found = await work(job, beat)
                keeper.cancel()
        except* _StoppedError:
            log.info(
                "an evaluation was stopped",
                extra={"action": "evaluation_stopped"} | job.log_context(),
            )
        except* Exception as group_error:  # noqa: BLE001 - a bad job must not end the process
            await self._fail(group_error)
        else:
            result = json.dumps(found, ensure_ascii=False)
            await self.evaluations.finish(job.evaluation_id, self.holder, result)
            log.info(
                "an evaluation is done", extra={"action": "evaluation_done"} | job.log_context()
            )

    async def _fail(self, group: BaseExceptionGroup) -> None:
        error = _first(group)
        if isinstance(error, StorageUnavailable):
            raise error  # the claim expires, and the job is restarted
        await self.evaluations.fail(self.job.evaluation_id, self.holder, _explained(error))
        is_known = isinstance(error, ServiceError | ValueError)
        details = {"action": "evaluation_failed"} | self.job.log_context()
        log.warning("an evaluation failed", extra=details, exc_info=None if is_known else error)


class Beat:
    """Renews the claim during the work and stops the work if the claim is lost."""

    def __init__(self, evaluations: Evaluations, job: Evaluation, holder: str) -> None:
        self._evaluations = evaluations
        self._job = job
        self._holder = holder
        self._progress = (0, job.total)
        self._written_at = 0.0

    async def progress(self, done: int, total: int) -> None:
        """Record the progress of the work; written at intervals."""
        self._progress = (done, total)
        if done == total or time.monotonic() - self._written_at >= BEAT_SECONDS:
            await self._write()

    def note(self, done: int, total: int) -> None:
        """Record the progress of work in a thread; `keep` writes it."""
        self._progress = (done, total)

    async def keep(self) -> None:
        """Renew the claim even during a long step."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            with suppress(StorageUnavailable):  # the claim outlives some beats
                await self._write()

    async def _write(self) -> None:
        self._written_at = time.monotonic()
        job, holder = self._job.evaluation_id, self._holder
        if not await self._evaluations.advance(job, holder, self._progress, CLAIM_SECONDS):
            raise _StoppedError


def _first(group: BaseExceptionGroup) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _explained(error: BaseException) -> str:
    if isinstance(error, ServiceError):
        return error.explanation
    if isinstance(error, ValueError):
        return str(error)
    return "Internal error; the service's log has details under the evaluation's id."
