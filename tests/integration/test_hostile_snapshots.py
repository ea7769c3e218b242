"""Snapshots in Redis that nobody of us wrote, in front of a real database: none serves, and good ones do."""

import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import cache

import pytest
from redis.asyncio import Redis

from model.learner import Learner
from model.state.snapshot import to_bytes
from service.bus.bus import RedisBus, RedisOptions
from service.bus.messages import FORMAT, HEADER, MAGIC, CachedSnapshot, encode
from service.deciding.policies import Policies, PolicyOptions
from service.experiment_spec import ExperimentSpec
from service.records import Experiment, NewSnapshot, uuid7
from service.storage.database import Database
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots
from tests.support.hostile import mutated
from tests.support.measuring import Measured
from tests.support.storage import running
from tests.support.waiting import PATIENCE_SECONDS, eventually

SPEC = ExperimentSpec.from_json(
    "doses",
    '{"arms": ["low", "high"], "context": {"kind": "shared", "shape": [4]}, "method": "linucb",'
    ' "seed": 7, "config": {}}',
)
ALTERED = SPEC.seed + 1
HUGE_VERSION = 10**9
VALUES, GOOD_EVERY = 3000, 100
SECONDS_TO_HEAL = 2.0


@cache
def policy_bytes(version: int, seed: int = SPEC.seed) -> bytes:
    return to_bytes(Learner(SPEC.bandit_config(), seed), version)


@dataclass
class Attack:
    """A server's policies, and the Redis that an attacker writes to."""

    experiment: Experiment
    snapshots: Snapshots
    policies: Policies
    bus: RedisBus
    redis: Redis
    prefix: str
    key: bytes
    refused: Counter[str]
    version: int = 0

    async def publish(self) -> None:
        """A trainer saves and publishes the next version."""
        blob = policy_bytes(self.version + 1)
        await self.save(blob)
        await self.bus.publish(self.experiment, self.version, 0, blob)

    async def save(self, blob: bytes) -> None:
        await self.snapshots.save(
            self.experiment.experiment_id,
            epoch=0,
            expected_version=self.version,
            snapshot=NewSnapshot(0, 0, "sha256:state", blob),
        )
        self.version += 1

    async def put(self, value: bytes) -> None:
        await self.redis.set(f"{self.prefix}:snapshot:{self.experiment.experiment_id}", value)

    async def served(self) -> int:
        return (await self.policies.current(self.experiment.name)).version

    async def taken(self) -> int:
        """The version that serves after the next news."""
        await self.policies.look([self.experiment.name])
        return await self.served()

    def signed(self, version: int, blob: bytes, key: bytes | None = None) -> bytes:
        snapshot = CachedSnapshot(version, 0, blob)
        return encode(key or self.key, self.experiment.experiment_id, snapshot)


@pytest.fixture
async def attack(database: Database, redis_url: str) -> AsyncIterator[Attack]:
    prefix, refused = uuid7(), Counter[str]()
    snapshots = Snapshots(database)
    key = await snapshots.signing_key()
    options = RedisOptions(prefix, timeout_seconds=PATIENCE_SECONDS, pause_seconds=0)
    bus = RedisBus(redis_url, key, options, on_refusal=lambda why: refused.update([why]))
    experiments = Experiments(database)
    experiment = await experiments.create("doses", SPEC.to_json())
    policies = Policies(experiments, snapshots, bus, options=PolicyOptions(PATIENCE_SECONDS))
    async with Redis.from_url(redis_url) as client:
        made = Attack(experiment, snapshots, policies, bus, client, prefix, key, refused)
        assert await made.served() == 0
        yield made
    await bus.close()


def forgeries(attack: Attack, rng: random.Random) -> list[Callable[[], bytes]]:
    """Ways to make a value that must not serve; the last two need the key itself."""
    good = policy_bytes(attack.version)
    value = attack.signed(attack.version, good)
    next_version = attack.version + 1
    signature = HEADER.unpack_from(value)[-1]

    def header_edited() -> bytes:
        numbers = rng.choice([next_version, HUGE_VERSION, 2**63 - 1, -1]), rng.randrange(10)
        return HEADER.pack(MAGIC, *numbers, signature) + good

    def of_another_experiment() -> bytes:
        return encode(attack.key, uuid7(), CachedSnapshot(next_version, 0, good))

    def of_another_build() -> bytes:
        return FORMAT + rng.randbytes(1) + value[len(MAGIC) :]

    def with_another_key() -> bytes:
        altered = policy_bytes(HUGE_VERSION, ALTERED)
        return attack.signed(HUGE_VERSION, altered, rng.randbytes(32))

    def with_another_version() -> bytes:
        version = rng.choice([next_version, HUGE_VERSION, 2**63 - 1])
        return attack.signed(version, policy_bytes(version, ALTERED))

    def with_other_bytes() -> bytes:
        return attack.signed(next_version, mutated(good, rng))

    return [
        *(lambda: mutated(value, rng), header_edited, of_another_experiment, of_another_build),
        *(with_another_key, with_another_version, with_other_bytes),
    ]


async def test_no_forged_snapshot_serves_and_each_good_one_does(attack: Attack):
    rng = random.Random(7)
    await attack.publish()
    assert await attack.taken() == 1
    for number in range(VALUES):
        await attack.put(rng.choice(forgeries(attack, rng))())
        assert await attack.taken() == attack.version
        if number % GOOD_EVERY == 0:
            await attack.publish()
            assert await attack.taken() == attack.version
    policy = (await attack.policies.current("doses")).policy
    assert policy.seed == SPEC.seed
    assert attack.refused.keys() >= {"signature", "format", "version"}
    assert attack.refused.total() > VALUES / 2


async def test_a_refused_snapshot_is_replaced_by_the_databases_at_once(attack: Attack):
    await attack.save(policy_bytes(1))
    for value in (attack.signed(HUGE_VERSION, policy_bytes(HUGE_VERSION, ALTERED)), b"anything"):
        await attack.save(policy_bytes(attack.version + 1))
        await attack.put(value)
        assert await attack.taken() == attack.version
    assert attack.refused == {"version": 1, "signature": 1}


async def test_even_the_key_does_not_alter_a_version_of_the_database(attack: Attack):
    await attack.publish()
    assert await attack.taken() == 1
    await attack.save(policy_bytes(2))
    await attack.put(attack.signed(2, policy_bytes(2, ALTERED)))
    assert await attack.taken() == 2
    assert (await attack.policies.current("doses")).policy.seed == SPEC.seed


async def test_a_signed_snapshot_of_old_is_not_served_again(attack: Attack):
    await attack.publish()
    old = attack.signed(1, policy_bytes(1))
    await attack.publish()
    assert await attack.taken() == 2
    await attack.put(old)
    assert await attack.taken() == 2
    await attack.publish()
    assert await attack.taken() == 3


@pytest.mark.slow
async def test_after_forged_ones_a_good_one_serves_in_time(attack: Attack, measured: Measured):
    rng, slowest = random.Random(7), 0.0
    channel = f"{attack.prefix}:snapshot"
    async with running(attack.bus.run(), attack.policies.run()):
        for _ in range(20):
            await attack.put(rng.choice(forgeries(attack, rng))())
            await attack.redis.publish(channel, attack.experiment.name)
            began = time.monotonic()
            await attack.publish()

            async def is_served() -> bool:
                return await attack.served() == attack.version

            await eventually(is_served)
            slowest = max(slowest, time.monotonic() - began)
    measured.at_most("seconds until a good snapshot serves", slowest, SECONDS_TO_HEAL)
