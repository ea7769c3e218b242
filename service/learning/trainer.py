"""The trainer: finds the experiments and trains each that nobody else does."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from service.errors import StorageUnavailable
from service.learning.job_runner import JobRunner
from service.learning.lease_loop import ExperimentTrainer
from service.learning.training_loop import Assignment, TrainerOptions, TrainerStores
from service.metrics import Metrics

__all__ = ["Trainer", "TrainerOptions", "TrainerStores"]

log = logging.getLogger(__name__)


class Trainer:
    """Folds the logs of all experiments that nobody else trains."""

    def __init__(
        self, stores: TrainerStores, options: TrainerOptions, metrics: Metrics, runner: JobRunner
    ) -> None:
        self._stores = stores
        self._options = options
        self._metrics = metrics
        self._runner = runner  # closed when the trainer ends

    async def run(self) -> None:
        """Train until cancelled; meant for a supervisor. An error of one experiment ends all."""
        known: set[str] = set()
        # One encoder trains at a time: two would only slow each other and the serving down.
        executor = ThreadPoolExecutor(1, "daband-training")
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._take_on_new(group, known, executor)
                    await asyncio.sleep(self._options.poll_seconds)
        finally:
            self._runner.close()
            executor.shutdown(wait=False, cancel_futures=True)

    async def _take_on_new(
        self, group: asyncio.TaskGroup, known: set[str], executor: ThreadPoolExecutor
    ) -> None:
        try:
            experiments = await self._stores.experiments.list()
        except StorageUnavailable:
            log.warning("storage is away", extra={"action": "trainer_waits"})
            return
        for experiment in experiments:
            if experiment.name not in known:
                known.add(experiment.name)
                assignment = Assignment(
                    experiment, self._stores, self._options, self._metrics, self._runner, executor
                )
                work = ExperimentTrainer(assignment).run()
                group.create_task(work, name=f"trainer-{experiment.name}")
