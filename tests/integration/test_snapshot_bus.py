"""The snapshot bus's contract, in one process and over a real Redis, and Redis's failures."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from service.bus.bus import (
    KEPT_SECONDS,
    InProcessBus,
    RedisBus,
    RedisOptions,
    SnapshotBus,
)
from service.bus.messages import CachedSnapshot, Topic, name_in
from service.records import uuid7
from tests.support.builders import stored_experiment
from tests.support.hostile import mutated
from tests.support.processes.faulty_proxy import FaultyProxy
from tests.support.processes.servers import RedisServer
from tests.support.storage import running
from tests.support.waiting import PATIENCE_SECONDS, eventually

DOSES, OTHER = stored_experiment("doses"), stored_experiment("other")
QUIET_SECONDS = 0.05
KEY = b"the key of a database"


def patient(prefix: str) -> RedisOptions:
    return RedisOptions(prefix=prefix, timeout_seconds=PATIENCE_SECONDS, pause_seconds=0.05)


@pytest.fixture(params=["in process", "redis"])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[SnapshotBus]:
    made: SnapshotBus = InProcessBus()
    if request.param == "redis":
        made = RedisBus(request.getfixturevalue("redis_url"), KEY, patient(uuid7()))
    async with running(made.run()):
        yield made
    await made.close()


async def subscribed(sender: SnapshotBus, receiver: SnapshotBus) -> None:
    """Wait until a message of one bus arrives at the other."""
    listener = receiver.listen(Topic.REWARD)

    async def is_heard() -> bool:
        sender.wake("are-you-there")
        return bool(await listener.wait(QUIET_SECONDS))

    await eventually(is_heard)


async def test_what_is_published_last_is_the_latest(bus: SnapshotBus):
    assert await bus.latest(DOSES) is None
    await bus.publish(DOSES, 1, 10, b"one")
    await bus.publish(DOSES, 2, 20, b"two")
    await bus.publish(OTHER, 7, 70, b"")
    assert await bus.latest(DOSES) == CachedSnapshot(2, 20, b"two")
    assert await bus.latest(OTHER) == CachedSnapshot(7, 70, b"")


async def test_listeners_hear_each_name_once_and_only_of_their_topic(bus: SnapshotBus):
    snapshots, rewards = bus.listen(Topic.SNAPSHOT), bus.listen(Topic.REWARD)
    for version in (1, 2):
        await bus.publish(DOSES, version, 10, b"state")
    await bus.publish(OTHER, 1, 10, b"state")
    heard = await snapshots.wait(PATIENCE_SECONDS)
    if "other" not in heard:  # a message of its own, which may come late
        heard |= await snapshots.wait(PATIENCE_SECONDS)
    assert heard == {"doses", "other"}
    assert await rewards.wait(QUIET_SECONDS) == set()


async def test_every_listener_gets_every_message(bus: SnapshotBus):
    first, second = bus.listen(Topic.REWARD), bus.listen(Topic.REWARD)
    bus.wake("doses")
    assert await first.wait(PATIENCE_SECONDS) == {"doses"}
    assert await second.wait(PATIENCE_SECONDS) == {"doses"}


async def test_a_listener_that_waits_is_woken(bus: SnapshotBus):
    listener = bus.listen(Topic.REWARD)
    waiting = asyncio.create_task(listener.wait(PATIENCE_SECONDS))
    await asyncio.sleep(0)
    bus.wake("doses")
    assert await waiting == {"doses"}


async def test_another_process_gets_messages_and_snapshots(redis_url: str):
    options = patient(uuid7())
    one, two = RedisBus(redis_url, KEY, options), RedisBus(redis_url, KEY, options)
    async with running(one.run(), two.run()):
        await subscribed(one, two)
        snapshots, rewards = two.listen(Topic.SNAPSHOT), two.listen(Topic.REWARD)
        await one.publish(DOSES, 3, 30, b"state")
        one.wake("doses")
        assert await snapshots.wait(PATIENCE_SECONDS) == {"doses"}
        await eventually(lambda: _hears(rewards, "doses"))
        assert await two.latest(DOSES) == CachedSnapshot(3, 30, b"state")
    await one.close()
    await two.close()


async def _hears(listener, name: str) -> bool:
    return name in await listener.wait(1)


async def test_two_prefixes_do_not_meet(redis_url: str):
    one, two = (
        RedisBus(redis_url, KEY, patient(uuid7())),
        RedisBus(redis_url, KEY, patient(uuid7())),
    )
    await one.publish(DOSES, 1, 10, b"state")
    assert await two.latest(DOSES) is None
    await one.close()
    await two.close()


async def test_a_snapshot_is_forgotten_with_its_experiment(bus: SnapshotBus):
    await bus.publish(DOSES, 1, 10, b"one")
    await bus.publish(OTHER, 1, 10, b"one")
    listener = bus.listen(Topic.SNAPSHOT)
    await bus.forget(DOSES)
    assert await bus.latest(DOSES) is None
    assert await bus.latest(OTHER) is not None
    assert await listener.wait(PATIENCE_SECONDS) == {"doses"}


async def test_an_experiment_of_the_same_name_has_a_snapshot_of_its_own(bus: SnapshotBus):
    await bus.publish(DOSES, 9, 90, b"of the one before")
    assert await bus.latest(replace(DOSES, experiment_id="another")) is None


async def test_inside_a_process_the_oldest_snapshots_make_room():
    bus = InProcessBus(memory_bytes=10)
    await bus.publish(DOSES, 1, 10, bytes(6))
    await bus.publish(OTHER, 1, 10, bytes(6))
    assert await bus.latest(DOSES) is None
    assert await bus.latest(OTHER) is not None
    await bus.publish(DOSES, 2, 20, bytes(4))
    assert await bus.latest(OTHER) is not None


async def test_snapshots_leave_redis_after_a_time(redis_url: str):
    prefix = uuid7()
    bus, client = RedisBus(redis_url, KEY, patient(prefix)), Redis.from_url(redis_url)
    await bus.publish(DOSES, 1, 10, b"state")
    assert 0 < await client.ttl(f"{prefix}:snapshot:{DOSES.experiment_id}") <= KEPT_SECONDS
    await client.aclose()
    await bus.close()


async def test_a_broken_value_is_no_snapshot(redis_url: str):
    prefix, refused = uuid7(), list[str]()
    bus = RedisBus(redis_url, KEY, patient(prefix), on_refusal=refused.append)
    client = Redis.from_url(redis_url)
    await bus.publish(DOSES, 1, 10, b"state")
    value = await client.get(f"{prefix}:snapshot:{DOSES.experiment_id}")
    assert isinstance(value, bytes)
    for of, bad in ((DOSES, value[:-1]), (DOSES, b"x" + value[1:]), (OTHER, value)):
        await client.set(f"{prefix}:snapshot:{of.experiment_id}", bad)
        assert await bus.latest(of) is None
    assert refused == ["signature"] * 3
    await client.aclose()
    await bus.close()


async def test_a_large_snapshot_passes(redis_url: str):
    bus = RedisBus(redis_url, KEY, patient(uuid7()))
    blob = bytes(1000) * 8000
    await bus.publish(DOSES, 1, 10, blob)
    assert await bus.latest(DOSES) == CachedSnapshot(1, 10, blob)
    await bus.close()


async def test_while_redis_is_away_nothing_raises_and_local_listeners_get_messages(
    own_redis: RedisServer,
):
    failures = Counter[str]()
    bus = RedisBus(own_redis.url, KEY, on_failure=lambda name: failures.update([name]))
    own_redis.kill()
    listeners = [bus.listen(topic) for topic in Topic]
    async with running(bus.run()):
        await bus.publish(DOSES, 1, 10, b"state")
        assert await bus.latest(DOSES) is None
        bus.wake("doses")
        for listener in listeners:
            assert await listener.wait(PATIENCE_SECONDS) == {"doses"}
        await eventually(lambda: failures["subscribe"] > 0)
    assert failures["publish"] == 1
    assert failures["latest"] == 0, "the circuit is open after the first failure"
    await bus.close()


async def test_a_redis_that_comes_back_is_used_again(own_redis: RedisServer):
    options = RedisOptions(timeout_seconds=1, pause_seconds=0.05, heartbeat_seconds=0.2)
    one, two = RedisBus(own_redis.url, KEY, options), RedisBus(own_redis.url, KEY, options)
    async with running(one.run(), two.run()):
        await subscribed(one, two)
        await asyncio.to_thread(own_redis.kill)
        await one.publish(DOSES, 1, 10, b"state")
        await asyncio.to_thread(own_redis.start)
        await subscribed(one, two)

        async def is_published() -> bool:
            await one.publish(DOSES, 2, 20, b"state")
            return await two.latest(DOSES) == CachedSnapshot(2, 20, b"state")

        await eventually(is_published)
    await one.close()
    await two.close()


async def test_a_redis_that_hangs_costs_one_short_wait(own_redis: RedisServer):
    failures = Counter[str]()
    async with FaultyProxy(own_redis.port, is_black_hole=True).running() as proxy:
        options = RedisOptions(pause_seconds=3600)
        url = f"redis://127.0.0.1:{proxy.port}"
        bus = RedisBus(url, KEY, options, on_failure=lambda name: failures.update([name]))
        for _ in range(200):
            await bus.publish(DOSES, 1, 10, b"state")
            assert await bus.latest(DOSES) is None
        assert failures.total() == 1, "all but the first call find the circuit open"
        await bus.close()


async def test_a_subscription_that_went_silent_is_made_again(own_redis: RedisServer):
    failures = Counter[str]()
    options = RedisOptions(timeout_seconds=1, pause_seconds=0.05, heartbeat_seconds=0.1)
    one = RedisBus(own_redis.url, KEY, options)
    two = RedisBus(own_redis.url, KEY, options, on_failure=lambda name: failures.update([name]))
    async with running(one.run(), two.run()):
        await subscribed(one, two)
        own_redis.pause()
        await eventually(lambda: failures["subscribe"] > 0)
        own_redis.resume()
        await subscribed(one, two)
    await one.close()
    await two.close()


async def test_a_flushed_redis_has_no_snapshot_and_takes_the_next(own_redis: RedisServer):
    bus = RedisBus(own_redis.url, KEY, RedisOptions(timeout_seconds=PATIENCE_SECONDS))
    client = Redis.from_url(own_redis.url)
    await bus.publish(DOSES, 1, 10, b"state")
    await client.flushall()
    assert await bus.latest(DOSES) is None
    await bus.publish(DOSES, 2, 20, b"state")
    assert await bus.latest(DOSES) == CachedSnapshot(2, 20, b"state")
    await client.aclose()
    await bus.close()


async def test_a_value_of_another_type_is_no_snapshot(redis_url: str):
    prefix = uuid7()
    options = RedisOptions(prefix, timeout_seconds=PATIENCE_SECONDS, pause_seconds=0)
    bus, client = RedisBus(redis_url, KEY, options), Redis.from_url(redis_url)
    await client.rpush(f"{prefix}:snapshot:{DOSES.experiment_id}", "state")
    assert await bus.latest(DOSES) is None
    await bus.publish(DOSES, 1, 10, b"state")
    assert await bus.latest(DOSES) == CachedSnapshot(1, 10, b"state")
    await client.aclose()
    await bus.close()


async def test_messages_of_any_bytes_are_dropped_and_counted_and_the_next_name_is_heard(
    redis_url: str,
):
    prefix, refused, rng = uuid7(), Counter[str](), random.Random(7)
    one = RedisBus(redis_url, KEY, patient(prefix))
    two = RedisBus(redis_url, KEY, patient(prefix), on_refusal=lambda why: refused.update([why]))
    messages = [mutated(b"acme/doses", rng) for _ in range(10_000)]
    async with running(one.run()):
        receiving = asyncio.create_task(two.run())
        await subscribed(one, two)
        async with Redis.from_url(redis_url) as client:
            for topic in Topic:
                pipeline = client.pipeline(transaction=False)
                for message in messages[:: 1 if topic is Topic.SNAPSHOT else 10]:
                    pipeline.publish(f"{prefix}:{topic}", message)
                await pipeline.execute()
        sent = [*messages, *messages[::10]]
        nameless = sum(name_in(message) is None for message in sent)
        await eventually(lambda: refused.total() >= nameless or receiving.done())
        await subscribed(one, two)
        assert not receiving.done()
        receiving.cancel()
        await asyncio.wait([receiving])
    assert refused == {"message": nameless}
    await one.close()
    await two.close()
