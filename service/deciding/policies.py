"""The current policy of each experiment in memory, replaced when the trainer publishes."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from model import Learner, Policy, SnapshotError, estimated, restore_policy
from service.bus.bus import SnapshotBus
from service.bus.messages import Topic
from service.deciding.scorer import Placement
from service.errors import StorageUnavailable
from service.experiment_spec import ExperimentSpec
from service.metrics import Metrics
from service.records import Experiment, StoredSnapshot
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """An experiment and the version of its policy that answers requests."""

    experiment: Experiment
    spec: ExperimentSpec
    policy: Policy

    @property
    def version(self) -> int:
        """The version of the policy; 0 before the first snapshot."""
        return self.policy.version.version


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """When to poll for new policies, and when to drop policies from memory.

    All policies take at most `memory_bytes`, by estimate: the least recently used one is dropped first.
    One that was not used for `idle_seconds` is dropped as well.
    """

    poll_seconds: float = 0.5
    memory_bytes: int = 2 << 30
    idle_seconds: float = 600.0


@dataclass(frozen=True, slots=True)
class Published:
    """A policy and the time of its publication."""

    policy: Policy
    created_at: datetime


class Policies:
    """A lookup of policies in memory, with a background task that follows the trainers.

    A message of the bus brings a new policy at once, if it is the database's of that version. If it is not,
    the database's newest is taken; if the message is lost, a poll finds it within `poll_seconds`. While the
    database is away, the last good policy serves. Only used experiments are in memory.
    """

    def __init__(
        self,
        experiments: Experiments,
        snapshots: Snapshots,
        bus: SnapshotBus,
        placement: Placement | None = None,
        options: PolicyOptions | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._experiments = experiments
        self._snapshots = snapshots
        self._bus = bus
        self._placement = placement or Placement()
        self._options = options or PolicyOptions()
        self._metrics = metrics or Metrics()
        self._served: dict[str, Served] = {}  # by name, the most recently used last
        self._bytes: dict[str, int] = {}  # estimated size of each
        self._used: set[str] = set()  # names used since the last poll
        self._used_at: dict[str, float] = {}
        self._loading: dict[str, asyncio.Task[Served]] = {}

    async def current(self, name: str) -> Served:
        """The current policy of an experiment; raises `UnknownExperiment`."""
        served = self.known(name)
        return served if served is not None else await self._loaded(name)

    def known(self, name: str) -> Served | None:
        """The same if it is in memory, without waiting."""
        self._used.add(name)
        return self._served.get(name)

    def forget(self, name: str) -> None:
        """Drop an experiment's policy, for example after its deletion."""
        for kept in (self._served, self._bytes, self._used_at):
            kept.pop(name, None)

    async def run(self) -> None:
        """Follow the trainers until cancelled; meant for a supervisor."""
        listener = self._bus.listen(Topic.SNAPSHOT)
        loop = asyncio.get_running_loop()
        next_poll = loop.time() + self._options.poll_seconds
        while True:
            announced = await listener.wait(max(0.0, next_poll - loop.time()))
            is_poll = loop.time() >= next_poll
            if is_poll:
                next_poll = loop.time() + self._options.poll_seconds
                self._note_use(loop.time())
            await self.look(announced, is_poll=is_poll)

    async def look(self, announced: Iterable[str] = (), *, is_poll: bool = False) -> None:
        """Look for new policies of the announced experiments, or of all; only of those in memory."""
        try:
            wanted = {}
            for name in announced:
                served = self._served.get(name)
                if served is not None and not await self._take_from_bus(served):
                    wanted[served.experiment.experiment_id] = name
            if is_poll:
                await self._poll()
            elif wanted:
                await self._look_up(wanted)
        except StorageUnavailable:
            log.warning(
                "policies not polled: storage is unavailable",
                extra={"action": "policy_poll_failed"},
            )

    async def _loaded(self, name: str) -> Served:
        """Load a policy once, however many requests need it: after a restart all of them do."""
        loading = self._loading.get(name)
        if loading is None:
            loading = self._loading[name] = asyncio.create_task(self._first(name))
            loading.add_done_callback(lambda _: self._loading.pop(name))
        return await asyncio.shield(loading)

    async def _first(self, name: str) -> Served:
        experiment = await self._experiments.get(name)
        spec = ExperimentSpec.of(experiment)
        stored = await self._newest_stored(experiment)
        if stored is None:
            policy = await asyncio.to_thread(
                self._placement.placed, lambda device: initial_policy(spec, device)
            )
            stored = Published(policy, experiment.created_at)
        served = Served(experiment, spec, stored.policy)
        self._served[name] = served
        self._bytes[name] = estimated(spec.bandit_config()).policy_bytes
        self._used_at[name] = asyncio.get_running_loop().time()
        self._observe(served, stored.created_at)
        self._make_room(name)
        return served

    def _note_use(self, now: float) -> None:
        """Move recently used policies to the end, and drop idle ones."""
        for name in self._used & self._served.keys():
            self._served[name] = self._served.pop(name)
            self._used_at[name] = now
        self._used.clear()
        for name in list(self._served):
            if now - self._used_at[name] < self._options.idle_seconds:
                break
            self.forget(name)

    def _make_room(self, newest: str) -> None:
        """Drop the least recently used policies until the others fit."""
        total = sum(self._bytes.values())
        for name in [each for each in self._served if each != newest]:
            if total <= self._options.memory_bytes:
                break
            total -= self._bytes[name]
            self.forget(name)

    async def _take_from_bus(self, served: Served) -> bool:
        """Whether the bus had what the database vouches for; a newer version then serves."""
        experiment = served.experiment
        cached = await self._bus.latest(experiment)
        if cached is None or cached.version <= served.version:
            return cached is not None
        record = await self._snapshots.find(experiment.experiment_id, cached.version)
        published = None
        if record is not None:
            published = await self._published(experiment, StoredSnapshot(record, cached.blob))
        if published is None:
            self._bus.refuse(experiment, cached.version)
            return False
        self._swap(experiment, published)
        return True

    async def _poll(self) -> None:
        await self._look_up(
            {served.experiment.experiment_id: name for name, served in self._served.items()}
        )

    async def _look_up(self, ids: Mapping[str, str]) -> None:
        """Refresh experiments from the database; `ids` maps their ids to names."""
        found = await self._experiments.get_many(list(ids))
        for experiment in found:
            if experiment.name in self._served:
                await self._refresh(experiment)
        for gone in ids.keys() - {each.experiment_id for each in found}:
            self.forget(ids[gone])

    async def _refresh(self, experiment: Experiment) -> None:
        """Update an experiment and its policy from its database row."""
        if self._served[experiment.name].experiment.experiment_id != experiment.experiment_id:
            return  # another experiment of the same name was created meanwhile
        if experiment.next_version - 1 > self._served[experiment.name].version:
            stored = await self._newest_stored(experiment)
            if stored is not None:
                self._swap(experiment, stored)
        before = self._served.get(experiment.name)
        if before is None:
            return  # dropped meanwhile
        served = replace(before, experiment=experiment)
        self._served[experiment.name] = served
        lag = experiment.head_offset - served.policy.version.offset
        self._metrics.set_policy_lag(experiment.name, max(0, lag))

    def _swap(self, experiment: Experiment, published: Published) -> None:
        before = self._served.get(experiment.name)
        if before is None or before.experiment.experiment_id != experiment.experiment_id:
            return  # dropped meanwhile, or created again
        served = Served(experiment, before.spec, published.policy)
        if served.version > before.version:
            self._served[experiment.name] = served
            self._observe(served, published.created_at)

    def _observe(self, served: Served, created_at: datetime) -> None:
        self._metrics.set_policy(served.experiment.name, served.version, created_at)

    async def _newest_stored(self, experiment: Experiment) -> Published | None:
        """The policy of the newest intact snapshot."""
        return await self._snapshots.newest_usable(
            experiment.experiment_id, partial(self._published, experiment)
        )

    async def _published(self, experiment: Experiment, stored: StoredSnapshot) -> Published | None:
        """The policy of a snapshot, if bytes and policy are those that its record names."""
        if not await asyncio.to_thread(lambda: stored.is_intact):
            return None
        try:
            policy = await asyncio.to_thread(
                self._placement.placed, lambda device: restored(stored, device)
            )
        except Exception as error:  # whatever the bytes cause, the others go on
            reason = str(error) if isinstance(error, SnapshotError) else type(error).__name__
            details = {"action": "snapshot_rejected", "experiment": experiment.name}
            log.exception("a snapshot was rejected", extra={**details, "reason": reason})
            return None
        return Published(policy, stored.record.created_at)


def restored(stored: StoredSnapshot, device: str) -> Policy:
    """The policy of a snapshot; raises `SnapshotError` also if it is that of another version."""
    policy = restore_policy(stored.blob, device)
    if policy.version.version != stored.record.version:
        raise SnapshotError(f"the policy says that it is version {policy.version.version}")
    return policy


def initial_policy(spec: ExperimentSpec, device: str) -> Policy:
    """Version 0: the policy before any event."""
    return Learner(spec.bandit_config(), spec.seed).policy(0, device)
