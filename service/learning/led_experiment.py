"""One experiment that a trainer leads: from its lease to the end of its stay in memory."""

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
    """Learns one experiment until it is idle, must make room or fails; never raises but cancellation.

    Whatever goes wrong concerns this experiment alone: it is noted, and tried again after a pause
    that grows.
    """

    def __init__(self, experiment: Experiment, resources: TrainerResources) -> None:
        self.experiment = experiment
        self.learner_bytes = learner_bytes(experiment)
        self.began = 0.0  # when the trainer took it on
        self._resources = resources
        self._options = resources.options
        self._loop: TrainingLoop | None = None
        self._must_end = False
        self._idle_since: float | None = None

    @property
    def is_idle(self) -> bool:
        """Whether it only waits for events."""
        return self._idle_since is not None

    @property
    def can_leave(self) -> bool:
        """Whether nothing would be lost but time if it made room: no training runs."""
        return self._loop is not None and not self._loop.is_training

    def wake(self) -> None:
        """There may be events that are not folded."""
        if self._loop is not None:
            self._loop.wake()

    def note(self, experiment: Experiment) -> None:
        """The experiment's row says how far its log reaches, and so how large the learner may be."""
        if experiment.head_offset > 2 * self.experiment.head_offset:
            self.experiment = experiment
            self.learner_bytes = learner_bytes(experiment)
        if self._loop is not None:
            self._loop.wake(experiment.head_offset)

    def leave(self) -> None:
        """Make room as soon as no training runs."""
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
            self._log("trainer_waits", "storage is away")
        except RunnerClosed:
            self._log("trainer_waits", "the trainer is about to end")
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
        """Do what is due; the seconds until it should leave memory, none if it should now."""
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
        """Let another trainer begin at once; if that fails the lease ends with this process."""
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
    """What an experiment's learner takes at most, by estimate; a declaration that is bad, nothing."""
    try:
        config = ExperimentSpec.of(experiment).bandit_config()
        return estimated(config, rounds=experiment.head_offset).learner_bytes
    except (ServiceError, ValueError, TypeError, LookupError):
        return 0
