"""One experiment that a trainer leads, from acquiring its lease until it leaves memory."""

import asyncio
import logging

from model import estimated
from service.errors import (
    ServiceError,
    StaleEpoch,
    StorageUnavailable,
    UnknownExperiment,
    VersionConflict,
)
from service.experiment_spec import ExperimentSpec
from service.learning.jobs.job import RunnerClosed
from service.learning.resources import TrainerResources
from service.learning.training_loop import TrainingLoop
from service.records import Experiment, FailureStage, Lease

log = logging.getLogger(__name__)


class LedExperiment:
    """Learns one experiment until it is idle, must make room or fails; it raises nothing but cancellation.

    A failure affects this experiment only: it is recorded, and retried after a growing pause.
    """

    def __init__(self, experiment: Experiment, resources: TrainerResources) -> None:
        self.experiment = experiment
        self.learner_bytes = learner_bytes(experiment)
        self.began = 0.0  # when the trainer started to lead it
        self._resources = resources
        self._options = resources.options
        self._loop: TrainingLoop | None = None
        self._must_end = False
        self._idle_since: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether the experiment only waits for events."""
        return self._idle_since is not None

    @property
    def can_leave(self) -> bool:
        """Whether it can leave memory without losing work: no training runs."""
        return self._loop is not None and not self._loop.is_training

    def wake(self) -> None:
        """Check the log for new events."""
        if self._loop is not None:
            self._loop.wake()

    def note(self, experiment: Experiment) -> None:
        """Take the last offset of the log, and so the learner's size, from the experiment's row."""
        if experiment.head_offset > 2 * self.experiment.head_offset:
            self.experiment = experiment
            self.learner_bytes = learner_bytes(experiment)
        if self._loop is not None:
            self._loop.wake(experiment.head_offset)

    def leave(self) -> None:
        """Leave memory as soon as no training runs."""
        self._must_end = True
        self.wake()

    async def run(self) -> None:
        """Lead while there is something to do."""
        try:
            lease = await self._resources.stores.leases.acquire(
                self.experiment.experiment_id, self._resources.trainer_id
            )
            if lease is not None:
                await self._lead(lease)
        except (StaleEpoch, VersionConflict, UnknownExperiment) as error:
            self._log("lease_lost", f"leadership ended: {error}")
        except StorageUnavailable:
            self._log("trainer_waits", "storage is unavailable")
        except RunnerClosed:
            self._log("trainer_waits", "the trainer is shutting down")
        except Exception as error:
            details = {"action": "experiment_failed", **self.experiment.log_context()}
            log.exception("the learning of an experiment failed", extra=details)
            await self._note_failure(error)

    async def _lead(self, lease: Lease) -> None:
        loop = TrainingLoop(self.experiment, lease, self._resources)
        await loop.begin()
        self._loop = loop
        try:
            while (seconds := await self._step(loop)) > 0:
                await loop.wait(seconds)
            await loop.finish()
        finally:
            self._loop = None
            loop.end()
        await self._release(lease, is_unfinished=loop.is_unfinished)

    async def _step(self, loop: TrainingLoop) -> float:
        """Do what is due; returns the seconds until it should leave memory, 0 for now."""
        await loop.step()
        if self._must_end and not loop.is_training:
            return 0.0
        if not loop.is_idle:
            self._idle_since = None
            return float("inf")
        now = asyncio.get_running_loop().time()
        self._idle_since = now if self._idle_since is None else self._idle_since
        return self._idle_since + self._options.idle_seconds - now

    async def _release(self, lease: Lease, *, is_unfinished: bool) -> None:
        """Release the lease so that another trainer can start at once; otherwise it expires."""
        try:
            await self._resources.stores.leases.release(lease, is_unfinished=is_unfinished)
        except ServiceError:
            self._log("lease_kept", "the lease could not be released")

    async def _note_failure(self, error: Exception) -> None:
        reason = error.detail if isinstance(error, ServiceError) else type(error).__name__
        text = f"Its log could not be folded: {reason}"
        failures = self._resources.stores.failures
        try:
            await failures.record(self.experiment.experiment_id, FailureStage.FOLDING, text)
        except ServiceError:
            self._log("trainer_waits", "the failure could not be stored")

    def _log(self, action: str, message: str) -> None:
        log.info(message, extra={"action": action, **self.experiment.log_context()})


def learner_bytes(experiment: Experiment) -> int:
    """The estimated maximum size of an experiment's learner; 0 for an invalid declaration."""
    try:
        config = ExperimentSpec.of(experiment).bandit_config()
        return estimated(config, rounds=experiment.head_offset).learner_bytes
    except (ServiceError, ValueError, TypeError, LookupError):
        return 0
