"""The current policy of each experiment, in memory, swapped whole when the trainer publishes."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from model.learner import Learner
from model.policy import Policy
from model.restoring import restore_policy
from model.snapshot import SnapshotError
from service.errors import StorageUnavailable
from service.experiment_spec import ExperimentSpec
from service.records import Experiment, utc_now
from service.snapshot_bus import SnapshotBus, Topic
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots

log = logging.getLogger(__name__)


def _tell_nobody(experiment: str, version: int, moment: datetime) -> None:
    """Nobody asked to be told."""


@dataclass(frozen=True, slots=True)
class Served:
    """What a request is answered with: one experiment and one version of its policy."""

    experiment: Experiment
    spec: ExperimentSpec
    policy: Policy

    @property
    def version(self) -> int:
        """The version of the policy; 0 before the first snapshot."""
        return self.policy.version.version


class Policies:
    """A memory lookup for requests; a refresher behind it that follows the trainers.

    A notice of the bus brings a new policy at once; a poll of the database does so within
    `poll_seconds` where the notice, or all of the bus, was lost.
    """

    def __init__(
        self,
        experiments: Experiments,
        snapshots: Snapshots,
        bus: SnapshotBus,
        device: str = "cpu",
        poll_seconds: float = 0.5,
        on_swap: Callable[[str, int, datetime], None] = _tell_nobody,
    ) -> None:
        self._experiments = experiments
        self._snapshots = snapshots
        self._bus = bus
        self._device = device
        self._poll_seconds = poll_seconds
        self._on_swap = (
            on_swap  # told experiment, version and time of every policy that begins to serve
        )
        self._served: dict[str, Served] = {}

    async def current(self, name: str) -> Served:
        """The policy to serve now; `UnknownExperiment` if there is no such experiment."""
        served = self._served.get(name)
        return served if served is not None else await self._first(name)

    async def run(self) -> None:
        """Follow the trainers until cancelled; meant for a supervisor."""
        listener = self._bus.listen(Topic.SNAPSHOT)
        loop = asyncio.get_running_loop()
        next_poll = loop.time() + self._poll_seconds
        while True:
            for name in await listener.wait(max(0.0, next_poll - loop.time())):
                if name in self._served:
                    await self._take_from_bus(name)
            if loop.time() >= next_poll:
                next_poll = loop.time() + self._poll_seconds
                await self._poll()

    async def _first(self, name: str) -> Served:
        experiment = await self._experiments.get(name)
        spec = ExperimentSpec.of(experiment)
        policy = await self._newest_stored(experiment)
        if policy is None:
            policy = Learner(spec.bandit_config(), spec.seed).policy(0, self._device)
        served = Served(experiment, spec, policy)
        newer = self._served.get(name)  # another request may have been here meanwhile
        if newer is None or newer.version < served.version:
            self._served[name] = served
            self._on_swap(name, served.version, utc_now())
        return self._served[name]

    async def _take_from_bus(self, name: str) -> None:
        served = self._served[name]
        cached = await self._bus.latest(name)
        if cached is None or cached.version <= served.version:
            return
        if (policy := await self._restored(name, cached.blob)) is not None:
            self._swap(served.experiment, policy)

    async def _poll(self) -> None:
        try:
            for experiment in await self._experiments.list():
                if experiment.name in self._served:
                    await self._refresh(experiment)
        except StorageUnavailable:
            log.warning("no poll: storage is away", extra={"action": "policy_poll_failed"})

    async def _refresh(self, experiment: Experiment) -> None:
        """What the database knows of an experiment, with its newest policy."""
        served = self._served[experiment.name]
        policy = served.policy
        if experiment.next_version - 1 > served.version:
            policy = await self._newest_stored(experiment) or policy
        self._swap(experiment, policy)

    def _swap(self, experiment: Experiment, policy: Policy) -> None:
        served = self._served[experiment.name]
        if policy.version.version >= served.version:
            self._served[experiment.name] = Served(experiment, served.spec, policy)
        if policy.version.version > served.version:
            self._on_swap(experiment.name, policy.version.version, utc_now())

    async def _newest_stored(self, experiment: Experiment) -> Policy | None:
        """The policy of the newest snapshot that is whole."""
        stored = await self._snapshots.latest(experiment.experiment_id)
        while stored is not None:
            if stored.is_intact:
                policy = await self._restored(experiment.name, stored.blob)
                if policy is not None:
                    return policy
            version = stored.record.version - 1
            stored = await self._snapshots.newest_at_or_before(experiment.experiment_id, version)
        return None

    async def _restored(self, name: str, blob: bytes) -> Policy | None:
        try:
            return await asyncio.to_thread(restore_policy, blob, self._device)
        except SnapshotError as error:
            details = {"action": "snapshot_rejected", "experiment": name, "reason": str(error)}
            log.exception("a snapshot was rejected", extra=details)
            return None
