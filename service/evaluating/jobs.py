"""Runs queued evaluations one at a time, next to the trainer."""

import asyncio
import json
import logging
import time

from service.errors import ServiceError, StorageUnavailable
from service.evaluating.request import stored_request
from service.evaluating.running import EvaluationStores, ExperimentEvaluation
from service.records import Evaluation, uuid7
from service.storage.evaluations import Evaluations

CLAIM_SECONDS = 30.0
BEAT_SECONDS = 0.5

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
        beat = _Beat(self._evaluations, job, self._holder)
        try:
            async with asyncio.TaskGroup() as group:
                keeper = group.create_task(beat.keep())
                result = await self._result(job, beat)
                keeper.cancel()
        except* _StoppedError:
            log.info(
                "an evaluation was stopped",
                extra={"action": "evaluation_stopped"} | job.log_context(),
            )
        except* Exception as group_error:  # noqa: BLE001 - a bad job must not end the process
            await self._fail(job, group_error)
        else:
            await self._evaluations.finish(job.evaluation_id, self._holder, result)
            log.info(
                "an evaluation is done", extra={"action": "evaluation_done"} | job.log_context()
            )
        return True

    async def _result(self, job: Evaluation, beat: "_Beat") -> str:
        experiment = await self._stores.experiments.get_by_id(job.experiment_id)
        request = stored_request(job.request)
        found = await ExperimentEvaluation(self._stores, experiment, request).run(beat.progress)
        return json.dumps(found, ensure_ascii=False)

    async def _fail(self, job: Evaluation, group: BaseExceptionGroup) -> None:
        error = _first(group)
        if isinstance(error, StorageUnavailable):
            raise error  # the claim expires, and the job is restarted
        await self._evaluations.fail(job.evaluation_id, self._holder, _explained(error))
        is_known = isinstance(error, ServiceError | ValueError)
        details = {"action": "evaluation_failed"} | job.log_context()
        log.warning("an evaluation failed", extra=details, exc_info=None if is_known else error)


class _Beat:
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

    async def keep(self) -> None:
        """Renew the claim even during a long step."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
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
