"""The trainer: finds experiments with work to do and leads those that no other trainer leads.

Idle experiments cost nothing: one query finds those with work, one row records that this trainer is alive,
and idle learners leave memory.
"""

import asyncio
import logging
from collections.abc import Iterable

from service.bus.messages import Topic
from service.errors import ServiceError, StorageUnavailable
from service.learning.jobs.queue import JobQueue
from service.learning.led_experiment import LedExperiment
from service.learning.resources import (
    PublishingPace,
    TrainerOptions,
    TrainerResources,
    TrainerStores,
)
from service.metrics import Metrics
from service.records import Experiment, uuid7

RENEWALS_A_LEASE = 4
RETRY_SECONDS = 0.5  # before an experiment is led again after it left

log = logging.getLogger(__name__)


class Trainer:
    """Leads as many experiments at a time as fit into memory."""

    def __init__(
        self, stores: TrainerStores, options: TrainerOptions, metrics: Metrics, jobs: JobQueue
    ) -> None:
        self._stores = stores
        self._options = options
        self._metrics = metrics
        self._jobs = jobs  # closed when the trainer ends
        pace = PublishingPace(options.publish_fraction)
        self._resources = TrainerResources(uuid7(), stores, options, metrics, jobs, pace)
        self._led: dict[str, LedExperiment] = {}  # by experiment id
        self._by_name: dict[str, LedExperiment] = {}
        self._waiting: dict[str, LedExperiment] = {}  # by experiment id, in order of arrival
        self._not_before: dict[str, float] = {}

    async def run(self) -> None:
        """Train until cancelled; meant for a supervisor."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._renew()
                group.create_task(self._keep_leases(), name="trainer-lease")
                await self._dispatch(group)
        finally:
            self._jobs.close()
            await self._retire()

    async def _keep_leases(self) -> None:
        while True:
            await asyncio.sleep(self._options.lease_seconds / RENEWALS_A_LEASE)
            await self._renew()

    async def _renew(self) -> None:
        """Renew the leases; if that fails they may be lost, which the epoch makes harmless."""
        try:
            await self._stores.leases.renew(self._resources.trainer_id, self._options.lease_seconds)
        except StorageUnavailable:
            self._log_waiting()

    async def _retire(self) -> None:
        try:
            await self._stores.leases.retire(self._resources.trainer_id)
        except ServiceError:
            log.info("the leases could not be released", extra={"action": "lease_kept"})

    async def _dispatch(self, group: asyncio.TaskGroup) -> None:
        """Lead experiments with work: found at once by the bus, otherwise by a poll."""
        listener = self._stores.bus.listen(Topic.REWARD)
        loop = asyncio.get_running_loop()
        next_poll = loop.time()
        while True:
            names = await listener.wait(max(0.0, next_poll - loop.time()))
            is_poll = loop.time() >= next_poll
            if is_poll:
                next_poll = loop.time() + self._options.poll_seconds
            try:
                await self._look(names, is_poll=is_poll)
            except StorageUnavailable:
                self._log_waiting()
            self._lead_waiting(group)

    async def _look(self, names: set[str], *, is_poll: bool) -> None:
        unknown = []
        for name in names:
            led = self._by_name.get(name)
            if led is not None:
                led.wake()
            else:
                unknown.append(name)
        leases, trainer_id = self._stores.leases, self._resources.trainer_id
        if is_poll:
            self._take(await leases.due(trainer_id))
            self._metrics.set_failing(await self._stores.failures.names())
        elif unknown:
            self._take(await leases.due(trainer_id, sorted(unknown)))

    def _take(self, due: Iterable[Experiment]) -> None:
        for experiment in due:
            led = self._led.get(experiment.experiment_id)
            if led is not None:
                led.note(experiment)
            elif experiment.experiment_id not in self._waiting:
                self._waiting[experiment.experiment_id] = LedExperiment(experiment, self._resources)

    def _lead_waiting(self, group: asyncio.TaskGroup) -> None:
        now = asyncio.get_running_loop().time()
        free = self._options.memory_bytes - sum(led.learner_bytes for led in self._led.values())
        for experiment_id, waiting in list(self._waiting.items()):
            if now < self._not_before.get(experiment_id, 0.0):
                continue
            if waiting.learner_bytes > free and self._led:
                self._make_room(now)
                continue
            free -= waiting.learner_bytes
            del self._waiting[experiment_id]
            self._lead(group, waiting, now)
        self._metrics.set_led(len(self._led), len(self._waiting))

    def _make_room(self, now: float) -> None:
        """Ask one experiment to leave: an idle one, else one past its tenure; the largest first."""
        leaving = [led for led in self._led.values() if led.can_leave]
        rested = [led for led in leaving if led.is_idle]
        served = [led for led in leaving if now - led.began >= self._options.tenure_seconds]
        candidates = rested or served
        if candidates:
            max(candidates, key=lambda led: led.learner_bytes).leave()

    def _lead(self, group: asyncio.TaskGroup, led: LedExperiment, now: float) -> None:
        led.began = now
        self._led[led.experiment.experiment_id] = led
        self._by_name[led.experiment.name] = led
        task = group.create_task(led.run(), name=f"trainer-{led.experiment.name}")
        task.add_done_callback(lambda _: self._forget(led))

    def _forget(self, led: LedExperiment) -> None:
        experiment = led.experiment
        self._led.pop(experiment.experiment_id, None)
        if self._by_name.get(experiment.name) is led:
            del self._by_name[experiment.name]
        now = asyncio.get_running_loop().time()
        self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        self._not_before[experiment.experiment_id] = now + RETRY_SECONDS

    def _log_waiting(self) -> None:
        log.warning("storage is unavailable", extra={"action": "trainer_waits"})
