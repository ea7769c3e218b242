"""The policies in memory: swapped whole, never backwards, never for a damaged one."""

import asyncio
import hashlib
import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest

from model.budget import estimated
from model.learner import Learner
from model.state.snapshot import MAGIC, to_bytes
from service.bus.bus import InProcessBus
from service.deciding.policies import Policies, PolicyOptions
from service.errors import StorageUnavailable, UnknownExperiment
from service.experiment_spec import ExperimentSpec
from service.metrics import Metrics
from service.records import (
    Experiment,
    Phase,
    SnapshotRecord,
    Status,
    StoredSnapshot,
    utc_now,
)
from tests.support.hostile import mutated
from tests.support.storage import running
from tests.support.waiting import eventually

SPEC = ExperimentSpec.from_json(
    "doses",
    '{"arms": ["low", "high"], "context": {"kind": "shared", "shape": [4]}, "method": "linucb",'
    ' "seed": 7, "config": {}}',
)


@cache
def blob(version: int) -> bytes:
    return to_bytes(Learner(SPEC.bandit_config(), SPEC.seed), version)


def stored(version: int, content: bytes | None = None) -> StoredSnapshot:
    content = blob(version) if content is None else content
    digest = hashlib.sha256(blob(version)).hexdigest()
    record = SnapshotRecord(
        "x", version, 0, 0, 1, "hash", digest, len(content), False, utc_now(), {}
    )
    return StoredSnapshot(record, content)


@dataclass
class FakeStore:
    """Experiments and snapshots in memory; `is_away` as a database may be."""

    kept: dict[int, StoredSnapshot] = field(default_factory=dict)
    records: dict[int, SnapshotRecord] = field(default_factory=dict)  # of others, without bytes
    status: Status = Status.ACTIVE
    head_offset: int = 0
    is_away: bool = False
    reads: int = 0
    loads: int = 0  # of a snapshot's bytes
    names: tuple[str, ...] = ("doses",)
    asked: list[list[str]] = field(default_factory=list)

    @property
    def experiment(self) -> Experiment:
        return self.named("doses")

    def named(self, name: str) -> Experiment:
        newest = max(self.kept, default=0)
        return Experiment(
            *(f"id-{name}", name, SPEC.to_json(), Phase.ZERO_SHOT, self.status),
            *(self.head_offset, newest + 1, 1, utc_now()),
        )

    async def get(self, name: str) -> Experiment:
        self._check()
        if name not in self.names:
            raise UnknownExperiment
        return self.named(name)

    async def get_many(self, experiment_ids: list[str]) -> list[Experiment]:
        self._check()
        self.asked.append(sorted(experiment_ids))
        there = [name for name in self.names if f"id-{name}" in experiment_ids]
        return [self.named(name) for name in there]

    async def find(self, experiment_id: str, version: int) -> SnapshotRecord | None:
        self._check()
        records = self.records | {number: each.record for number, each in self.kept.items()}
        return records.get(version)

    async def newest_usable(self, experiment_id: str, use: Any) -> Any:
        self._check()
        self.loads += 1
        for version in sorted(self.kept, reverse=True):
            if (made := await use(self.kept[version])) is not None:
                return made
        return None

    def _check(self) -> None:
        self.reads += 1
        if self.is_away:
            raise StorageUnavailable

    def save(self, *snapshots: StoredSnapshot) -> None:
        self.kept |= {each.record.version: each for each in snapshots}


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
def bus() -> InProcessBus:
    return InProcessBus()


def policies(
    store: FakeStore,
    bus: InProcessBus,
    poll_seconds: float = 0.01,
    metrics: Metrics | None = None,
    **options: Any,
) -> Policies:
    fake: Any = store
    chosen = PolicyOptions(poll_seconds, **options)
    return Policies(fake, fake, bus, options=chosen, metrics=metrics)


def policy_metric(metrics: Metrics, name: str) -> float | None:
    """What a metric says of the policy of `doses`."""
    labels = {"experiment": "doses"}
    return metrics.registry.get_sample_value(f"daband_policy_{name}", labels)


async def version(made: Policies) -> int:
    return (await made.current("doses")).version


async def becomes(made: Policies, wanted: int) -> None:
    async def is_there() -> bool:
        return await version(made) == wanted

    await eventually(is_there)


async def test_before_the_first_snapshot_the_initial_policy_serves(
    store: FakeStore, bus: InProcessBus
):
    served = await policies(store, bus).current("doses")
    assert (served.version, served.spec.arms) == (0, ("low", "high"))


async def test_an_unknown_experiment_is_refused(store: FakeStore, bus: InProcessBus):
    with pytest.raises(UnknownExperiment):
        await policies(store, bus).current("other")


async def test_after_the_first_request_nothing_is_read(store: FakeStore, bus: InProcessBus):
    store.save(stored(1))
    made = policies(store, bus)
    first = await made.current("doses")
    reads, store.is_away = store.reads, True
    assert await made.current("doses") is first
    assert store.reads == reads


async def test_many_first_requests_load_a_policy_once(store: FakeStore, bus: InProcessBus):
    store.save(stored(1))
    await policies(store, bus).current("doses")
    reads_of_one, made = store.reads, policies(store, bus)
    first, *others = [asyncio.create_task(made.current("doses")) for _ in range(20)]
    await asyncio.sleep(0)
    first.cancel()  # its caller has gone, the others still wait
    served = await asyncio.gather(*others)
    assert {each.version for each in served} == {1}
    assert store.reads == 2 * reads_of_one


async def test_an_experiment_that_could_not_be_loaded_is_loaded_by_the_next_request(
    store: FakeStore, bus: InProcessBus
):
    made, store.is_away = policies(store, bus), True
    refused = await asyncio.gather(
        *[made.current("doses") for _ in range(3)], return_exceptions=True
    )
    assert [type(each) for each in refused] == [StorageUnavailable] * 3
    store.is_away = False
    assert (await made.current("doses")).version == 0


async def test_a_notice_of_the_bus_brings_the_new_policy(store: FakeStore, bus: InProcessBus):
    made = policies(store, bus, poll_seconds=3600)
    assert await version(made) == 0
    async with running(made.run()):
        await eventually(lambda: _is_listening(bus))
        store.save(stored(1))
        loads = store.loads
        await bus.publish(store.experiment, 1, 0, blob(1))
        await becomes(made, 1)
    assert store.loads == loads, "its bytes came from the bus"


def _is_listening(bus: InProcessBus) -> bool:
    return any(len(ears) for ears in bus._listeners._by_topic.values())


async def test_a_lost_notice_is_made_up_for_by_the_poll(store: FakeStore, bus: InProcessBus):
    made = policies(store, bus)
    assert await version(made) == 0
    async with running(made.run()):
        store.save(stored(1))
        await becomes(made, 1)


async def test_a_request_keeps_the_policy_that_it_began_with(store: FakeStore, bus: InProcessBus):
    made = policies(store, bus)
    held = await made.current("doses")
    async with running(made.run()):
        store.save(stored(1))
        await becomes(made, 1)
    assert held.version == held.policy.version.version == 0


async def test_an_older_version_never_replaces_a_newer_one(store: FakeStore, bus: InProcessBus):
    store.save(stored(2))
    made = policies(store, bus)
    assert await version(made) == 2
    async with running(made.run()):
        await bus.publish(store.experiment, 1, 0, blob(1))
        store.kept = {1: stored(1)}
        reads = store.reads
        await eventually(lambda: store.reads > reads + 3)
    assert await version(made) == 2


async def test_a_damaged_snapshot_is_passed_over(store: FakeStore, bus: InProcessBus):
    damaged = replace(stored(2), blob=blob(2)[:-1])
    store.save(stored(1), damaged)
    made = policies(store, bus)
    assert await version(made) == 1
    async with running(made.run()):
        await bus.publish(store.experiment, 3, 0, blob(2)[:100])
        store.save(stored(4))
        await becomes(made, 4)


async def test_bytes_that_are_whole_but_no_snapshot_are_passed_over(
    store: FakeStore, bus: InProcessBus
):
    bad = b"anything"
    record = replace(stored(2).record, sha256=hashlib.sha256(bad).hexdigest())
    store.save(stored(1), StoredSnapshot(record, bad))
    assert await version(policies(store, bus)) == 1


async def announced(made: Policies, bus: InProcessBus, *cached: tuple[int, bytes]) -> int:
    """The version that serves after such snapshots were put on the bus."""
    experiment = (await made.current("doses")).experiment
    for claimed, content in cached:
        await bus.publish(experiment, claimed, 0, content)
        await made.look(["doses"])
    return await version(made)


async def test_a_version_that_the_database_does_not_have_is_refused_for_its_newest(
    store: FakeStore,
):
    refused = list[str]()
    bus = InProcessBus(on_refusal=refused.append)
    made = policies(store, bus)
    assert await version(made) == 0
    store.save(stored(1))
    assert await announced(made, bus, (10**9, blob(10**9))) == 1
    assert await announced(made, bus, (3, blob(1))) == 1, "the claim alone is wrong"
    assert refused == ["version", "version"]


async def test_other_bytes_under_a_version_of_the_database_are_refused(store: FakeStore):
    refused = list[str]()
    bus = InProcessBus(on_refusal=refused.append)
    made = policies(store, bus)
    assert await version(made) == 0
    store.save(stored(1), stored(2))
    altered = to_bytes(Learner(SPEC.bandit_config(), SPEC.seed + 1), 1)
    assert await announced(made, bus, (1, altered)) == 2
    assert refused == ["version"]


async def test_a_snapshot_of_old_is_no_news(store: FakeStore, bus: InProcessBus):
    store.save(stored(1), stored(2))
    made = policies(store, bus)
    assert await version(made) == 2
    reads = store.reads
    assert await announced(made, bus, (1, blob(1)), (2, blob(2)), (0, blob(2)), (-1, b"")) == 2
    assert store.reads == reads


async def test_without_the_database_nothing_new_serves_until_it_is_back(
    store: FakeStore, bus: InProcessBus
):
    store.save(stored(1))
    made = policies(store, bus)
    assert await version(made) == 1
    store.save(stored(2))
    store.is_away = True
    assert await announced(made, bus, (2, blob(2)), (10**9, blob(10**9))) == 1
    store.is_away = False
    await made.look(is_poll=True)
    assert await version(made) == 2


async def test_news_of_experiments_that_are_not_in_memory_cost_nothing(
    store: FakeStore, bus: InProcessBus
):
    made = policies(store, bus)
    assert await version(made) == 0
    reads = store.reads
    await made.look([f"name-{number}" for number in range(1000)])
    assert store.reads == reads


async def test_a_policy_that_says_another_version_than_its_record_is_passed_over(
    store: FakeStore, bus: InProcessBus
):
    other = replace(stored(3).record, sha256=hashlib.sha256(blob(7)).hexdigest())
    store.save(stored(1), StoredSnapshot(other, blob(7)))
    made = policies(store, bus)
    assert await version(made) == 1
    assert await announced(made, bus, (3, blob(7))) == 1


async def test_whatever_bytes_cause_at_a_restore_the_good_policy_serves(
    store: FakeStore, bus: InProcessBus
):
    rng, seal = random.Random(7), len(MAGIC) + hashlib.sha256().digest_size
    store.save(stored(1))
    made = policies(store, bus)
    good = await made.current("doses")
    for _ in range(3000):
        body = mutated(blob(1)[seal:], rng)
        content = MAGIC + hashlib.sha256(body).digest() + body
        digest = hashlib.sha256(content).hexdigest()
        # As if the database itself had them.
        store.records[2] = replace(stored(1).record, version=2, sha256=digest)
        await bus.publish(store.experiment, 2, 0, content)
        await made.look(["doses"])
        assert (await made.current("doses")).policy is good.policy
    store.save(stored(3))
    assert await announced(made, bus, (3, blob(3))) == 3


async def test_a_storage_outage_leaves_the_last_policy_serving(store: FakeStore, bus: InProcessBus):
    made = policies(store, bus)
    assert await version(made) == 0
    async with running(made.run()):
        store.is_away = True
        reads = store.reads
        await eventually(lambda: store.reads > reads + 2)
        assert await version(made) == 0
        store.is_away = False
        store.save(stored(1))
        await becomes(made, 1)


async def test_a_pause_is_noticed_without_a_new_policy(store: FakeStore, bus: InProcessBus):
    made = policies(store, bus)
    assert (await made.current("doses")).experiment.status is Status.ACTIVE
    async with running(made.run()):
        store.status = Status.PAUSED

        async def is_paused() -> bool:
            return (await made.current("doses")).experiment.status is Status.PAUSED

        await eventually(is_paused)


async def test_a_policy_is_as_old_as_its_snapshot_after_a_restart(
    store: FakeStore, bus: InProcessBus
):
    snapshot, metrics = stored(3), Metrics()
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    store.save(replace(snapshot, record=replace(snapshot.record, created_at=long_ago)))
    await policies(store, bus, metrics=metrics).current("doses")
    assert policy_metric(metrics, "version") == 3
    assert policy_metric(metrics, "created_timestamp_seconds") == long_ago.timestamp()


async def test_a_poll_tells_how_many_events_the_policy_does_not_know(
    store: FakeStore, bus: InProcessBus
):
    metrics = Metrics()
    made = policies(store, bus, metrics=metrics)
    await made.current("doses")
    store.head_offset = 7
    async with running(made.run()):
        await eventually(lambda: policy_metric(metrics, "lag_events") == 7)


async def test_only_what_is_asked_for_is_polled(store: FakeStore, bus: InProcessBus):
    store.names = ("doses", "other", "third")
    made = policies(store, bus)
    async with running(made.run()):
        await made.current("doses")
        await made.current("third")
        await eventually(lambda: len(store.asked) > 2)
    assert store.asked[-1] == ["id-doses", "id-third"]


async def test_a_deleted_experiment_leaves_memory(store: FakeStore, bus: InProcessBus):
    made = policies(store, bus)
    await made.current("doses")
    async with running(made.run()):
        store.names = ()
        await eventually(lambda: made.known("doses") is None)
    with pytest.raises(UnknownExperiment):
        await made.current("doses")


async def polled(store: FakeStore) -> None:
    """Wait until a whole poll has gone by."""
    polls = len(store.asked)
    await eventually(lambda: len(store.asked) > polls + 1)


async def test_the_policy_used_least_recently_makes_room(store: FakeStore, bus: InProcessBus):
    store.names = tuple(f"e-{number}" for number in range(3))
    one = estimated(SPEC.bandit_config()).policy_bytes
    made = policies(store, bus, memory_bytes=2 * one)
    async with running(made.run()):
        await made.current("e-0")
        await made.current("e-1")
        await polled(store)  # of what is used between two polls, none counts as later
        made.known("e-0")
        await polled(store)
        await made.current("e-2")
    assert [made.known(name) is not None for name in store.names] == [True, False, True]
    await made.current("e-1")
    assert made.known("e-1") is not None, "it comes back from its snapshot"


async def test_an_unused_policy_leaves_memory(store: FakeStore, bus: InProcessBus):
    made = policies(store, bus, idle_seconds=0.0)
    await made.current("doses")
    async with running(made.run()):
        await eventually(lambda: not made._served)
