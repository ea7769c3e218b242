"""The snapshot bus: a cache of the newest snapshots, and notifications about new snapshots and rewards.

The bus may lose or delay anything, and it never raises errors to callers. Listeners also poll the
database. Whoever can write to Redis may send anything: what is no name of an experiment or not signed with
the database's key is dropped, and the database has the last word on the rest.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from redis.asyncio.client import Pipeline, PubSub
from redis.exceptions import RedisError

from service.bus.messages import (
    CachedSnapshot,
    Listener,
    Listeners,
    Topic,
    decode,
    encode,
    name_in,
)
from service.bus.redis_client import close, redis_client
from service.bus.refusals import Refusal, Refusals
from service.records import Experiment

T = TypeVar("T")
BUS_ERRORS = (RedisError, OSError)  # OSError covers timeouts
BYTES_A_SECOND = 50_000_000  # extends the timeout for large snapshots
KEPT_BYTES = 256 << 20  # of snapshots in the in-process bus
KEPT_SECONDS = 3600  # expiry of a snapshot in Redis
WAKE_SECONDS = 0.005  # rewards within this time share one message

log = logging.getLogger(__name__)


class SnapshotBus(Protocol):
    """Trainers publish snapshots here, and serving processes fetch them."""

    async def publish(self, experiment: Experiment, version: int, offset: int, blob: bytes) -> None:
        """Offer a saved snapshot to all processes and notify listeners."""

    async def latest(self, experiment: Experiment) -> CachedSnapshot | None:
        """The last published snapshot, signed; None if there is any doubt."""

    def refuse(self, experiment: Experiment, version: int) -> None:
        """The database does not have the cached snapshot: count it, and log it."""

    async def forget(self, experiment: Experiment) -> None:
        """Drop the snapshot of a deleted experiment."""

    def wake(self, experiment: str) -> None:
        """Notify trainers of new rewards in the background: never blocks, never fails."""

    def listen(self, topic: Topic) -> Listener:
        """A new listener for messages from now on; `wait` on it."""

    async def run(self) -> None:
        """Send and receive messages until cancelled; meant for a supervisor."""

    async def close(self) -> None:
        """Close the connections."""


class InProcessBus:
    """The bus of a single process."""

    def __init__(
        self,
        memory_bytes: int = KEPT_BYTES,
        on_refusal: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._memory_bytes = memory_bytes
        self._refusals = Refusals(on_refusal)
        self._latest: dict[str, CachedSnapshot] = {}  # the most recently published last
        self._listeners = Listeners()

    async def publish(self, experiment: Experiment, version: int, offset: int, blob: bytes) -> None:
        """Keep the snapshot in memory, if there is room, and notify listeners."""
        self._latest.pop(experiment.experiment_id, None)
        self._latest[experiment.experiment_id] = CachedSnapshot(version, offset, blob)
        while sum(len(each.blob) for each in self._latest.values()) > self._memory_bytes:
            del self._latest[next(iter(self._latest))]
        self._listeners.notify(Topic.SNAPSHOT, [experiment.name])

    async def latest(self, experiment: Experiment) -> CachedSnapshot | None:
        """The last published snapshot, if it is still kept."""
        return self._latest.get(experiment.experiment_id)

    def refuse(self, experiment: Experiment, version: int) -> None:
        self._refusals.note(Refusal.VERSION, version=version, **experiment.log_context())

    async def forget(self, experiment: Experiment) -> None:
        self._latest.pop(experiment.experiment_id, None)
        self._listeners.notify(Topic.SNAPSHOT, [experiment.name])

    def wake(self, experiment: str) -> None:
        self._listeners.notify(Topic.REWARD, [experiment])

    def listen(self, topic: Topic) -> Listener:
        return self._listeners.add(topic)

    async def run(self) -> None:
        """Wait to be cancelled; there is no background work."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """There is nothing to close."""


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """`timeout_seconds` limits a command; after a failure Redis is not used for `pause_seconds`."""

    prefix: str = "daband"
    timeout_seconds: float = 0.05
    pause_seconds: float = 1.0
    heartbeat_seconds: float = 1.0


class RedisBus:
    """The bus of many processes, over Redis; `signing_key` is the database's, and the same for all.

    `on_failure` is called with the operation of every failure: publish, latest, forget, wake or subscribe.
    `on_refusal` is called with the reason of every refusal (`Refusal`). Listeners in the same process are
    notified even while Redis is unavailable.
    """

    def __init__(
        self,
        url: str,
        signing_key: bytes,
        options: RedisOptions | None = None,
        on_failure: Callable[[str], None] = lambda operation: None,
        on_refusal: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._signing_key = signing_key
        self._options = options or RedisOptions()
        self._on_failure = on_failure
        self._redis = redis_client(url, self._options.timeout_seconds)
        self._refusals = Refusals(on_refusal)
        self._listeners = Listeners()
        self._resume_at = 0.0
        self._wakes = Listener(WAKE_SECONDS)

    async def publish(self, experiment: Experiment, version: int, offset: int, blob: bytes) -> None:
        """Replace the value with one SET, then notify listeners in all processes."""
        facts = self._signing_key, experiment.experiment_id, CachedSnapshot(version, offset, blob)
        value = await asyncio.to_thread(encode, *facts)  # megabytes: not on the event loop
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.set(self._key(experiment), value, ex=KEPT_SECONDS)
        await self._announce("publish", experiment, pipeline, len(value))

    async def forget(self, experiment: Experiment) -> None:
        """Drop the value, then notify listeners in all processes."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(self._key(experiment))
        await self._announce("forget", experiment, pipeline)

    async def latest(self, experiment: Experiment) -> CachedSnapshot | None:
        """The last snapshot published by any process; None if Redis fails or its value is invalid."""
        value = await self._guarded("latest", lambda: self._redis.get(self._key(experiment)))
        if not isinstance(value, bytes):
            return None
        facts = self._signing_key, experiment.experiment_id, value
        found = await asyncio.to_thread(decode, *facts)
        if isinstance(found, Refusal):
            size = {"size_bytes": len(value), **experiment.log_context()}
            self._refusals.note(found, **size)
            return None
        return found

    def refuse(self, experiment: Experiment, version: int) -> None:
        self._refusals.note(Refusal.VERSION, version=version, **experiment.log_context())

    def wake(self, experiment: str) -> None:
        """Notify trainers in this process at once and those in others soon."""
        self._listeners.notify(Topic.REWARD, [experiment])
        self._wakes.notify([experiment])

    def listen(self, topic: Topic) -> Listener:
        return self._listeners.add(topic)

    async def run(self) -> None:
        """Receive messages, subscribing again after failures, and send wake-ups."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive(), name="bus-receive")
            tasks.create_task(self._send_wakes(), name="bus-send")

    async def close(self) -> None:
        await close(self._redis)

    async def _announce(
        self, operation: str, experiment: Experiment, pipeline: Pipeline, size_bytes: int = 0
    ) -> None:
        """Send what the pipeline has, and the news of the experiment's snapshot."""
        pipeline.publish(self._channel(Topic.SNAPSHOT), experiment.name)
        await self._guarded(operation, pipeline.execute, size_bytes)
        self._listeners.notify(Topic.SNAPSHOT, [experiment.name])

    async def _guarded(
        self, operation: str, command: Callable[[], Awaitable[T]], size_bytes: int = 0
    ) -> T | None:
        if time.monotonic() < self._resume_at:
            return None
        try:
            async with asyncio.timeout(self._options.timeout_seconds + size_bytes / BYTES_A_SECOND):
                return await command()
        except Exception as error:  # noqa: BLE001 - whatever comes, callers go on without it
            self._resume_at = time.monotonic() + self._options.pause_seconds
            self._report(operation, type(error).__name__)
            return None

    def _report(self, operation: str, problem: str) -> None:
        self._on_failure(operation)
        details = {"action": "bus_failed", "operation": operation, "error": problem}
        log.warning("the snapshot bus failed", extra=details)

    async def _send_wakes(self) -> None:
        while True:
            names = await self._wakes.wait(self._options.heartbeat_seconds)
            if names:
                await self._guarded("wake", partial(self._send, names))

    async def _send(self, names: set[str]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for name in names:
            pipeline.publish(self._channel(Topic.REWARD), name)
        await pipeline.execute()

    async def _receive(self) -> None:
        while True:
            try:
                async with self._redis.pubsub() as subscription:
                    await self._follow(subscription)
            except BUS_ERRORS as error:
                self._report("subscribe", type(error).__name__)
            await asyncio.sleep(self._options.pause_seconds * random.uniform(0.5, 1))  # noqa: S311

    async def _follow(self, subscription: PubSub) -> None:
        topics = {self._channel(topic).encode(): topic for topic in Topic}
        async with asyncio.timeout(self._options.heartbeat_seconds):
            await subscription.subscribe(*topics)
        while True:
            message = await self._next(subscription)
            if message["type"] == "message":
                self._hear(topics[message["channel"]], message["data"])
            await asyncio.sleep(0)  # requests have their turn, however many messages wait

    def _hear(self, topic: Topic, message: bytes) -> None:
        name = name_in(message)
        if name is None:
            self._refusals.note(Refusal.MESSAGE, size_bytes=len(message))
        else:
            self._listeners.notify(topic, [name])

    async def _next(self, subscription: PubSub) -> Any:
        heartbeat = self._options.heartbeat_seconds
        message = await subscription.get_message(timeout=heartbeat)
        if message is None:
            # No message is normal, but a dead server sends none either: it must answer a ping.
            await subscription.ping()
            message = await subscription.get_message(timeout=heartbeat)
        if message is None:
            raise TimeoutError
        return message

    def _key(self, experiment: Experiment) -> str:
        return f"{self._options.prefix}:snapshot:{experiment.experiment_id}"

    def _channel(self, topic: Topic) -> str:
        return f"{self._options.prefix}:{topic.value}"
