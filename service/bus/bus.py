"""The snapshot bus: the newest snapshot of each experiment, and word of what is new.

A cache and a doorbell, nothing more: the bus may forget, delay or lose anything, and no caller
ever sees an error of it. Whoever listens also polls the database now and then.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from service.bus.messages import CachedSnapshot, Listener, Listeners, Topic, decode, encode
from service.records import Experiment

__all__ = ["CachedSnapshot", "InProcessBus", "Listener", "RedisBus", "SnapshotBus", "Topic"]

T = TypeVar("T")
BUS_ERRORS = (RedisError, OSError)  # OSError covers timeouts
BYTES_A_SECOND = 50_000_000  # a large snapshot may take longer than a small command
KEPT_BYTES = 256 << 20  # of snapshots, inside a process
KEPT_SECONDS = 3600  # in Redis; one that is published again is kept anew
WAKE_SECONDS = 0.005  # rewards that arrive within it share one message

log = logging.getLogger(__name__)


class SnapshotBus(Protocol):
    """Where trainers put snapshots and where serving processes find them."""

    async def publish(self, experiment: Experiment, version: int, offset: int, blob: bytes) -> None:
        """Offer a saved snapshot to all processes and tell those that listen."""

    async def latest(self, experiment: Experiment) -> CachedSnapshot | None:
        """The snapshot published last, whole and unchanged; none when in any doubt."""

    async def forget(self, experiment: Experiment) -> None:
        """Drop the snapshot of an experiment that is deleted."""

    def wake(self, experiment: str) -> None:
        """Tell the trainers of new rewards, in the background: never blocks, never fails."""

    def listen(self, topic: Topic) -> Listener:
        """An ear of its own for what happens from now on; `wait` on it."""

    async def run(self) -> None:
        """Carry messages until cancelled; meant for a supervisor."""

    async def close(self) -> None:
        """Let the connections go."""


class InProcessBus:
    """The bus of a single process."""

    def __init__(self, memory_bytes: int = KEPT_BYTES) -> None:
        self._memory_bytes = memory_bytes
        self._latest: dict[str, CachedSnapshot] = {}  # the one published last comes last
        self._listeners = Listeners()

    async def publish(self, experiment: Experiment, version: int, offset: int, blob: bytes) -> None:
        """Keep the snapshot in memory, as far as there is room, and tell the listeners."""
        self._latest.pop(experiment.experiment_id, None)
        self._latest[experiment.experiment_id] = CachedSnapshot(version, offset, blob)
        while sum(len(each.blob) for each in self._latest.values()) > self._memory_bytes:
            del self._latest[next(iter(self._latest))]
        self._listeners.tell(Topic.SNAPSHOT, [experiment.name])

    async def latest(self, experiment: Experiment) -> CachedSnapshot | None:
        """The snapshot published last in this process, if it is still kept."""
        return self._latest.get(experiment.experiment_id)

    async def forget(self, experiment: Experiment) -> None:
        """Drop the snapshot and tell the listeners."""
        self._latest.pop(experiment.experiment_id, None)
        self._listeners.tell(Topic.SNAPSHOT, [experiment.name])

    def wake(self, experiment: str) -> None:
        """Tell the trainers in this process."""
        self._listeners.tell(Topic.REWARD, [experiment])

    def listen(self, topic: Topic) -> Listener:
        """An ear of its own for what happens from now on."""
        return self._listeners.add(topic)

    async def run(self) -> None:
        """Nothing to carry: wait to be cancelled."""
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """Nothing to let go."""


@dataclass(frozen=True, slots=True)
class RedisOptions:
    """`timeout_seconds` bounds a command; after a failure none is tried for `pause_seconds`."""

    prefix: str = "daband"
    timeout_seconds: float = 0.05
    pause_seconds: float = 1.0
    heartbeat_seconds: float = 1.0


def _ignore(operation: str) -> None:
    """Count nothing."""


class RedisBus:
    """The bus of many processes, over Redis.

    `on_failure` is told the operation of every failure: publish, latest, forget, wake or subscribe.
    Listeners in the same process hear of everything even while Redis is away.
    """

    def __init__(
        self,
        url: str,
        options: RedisOptions | None = None,
        on_failure: Callable[[str], None] = _ignore,
    ) -> None:
        self._options = options or RedisOptions()
        self._on_failure = on_failure
        self._redis = _client(url, self._options.timeout_seconds)
        self._listeners = Listeners()
        self._resume_at = 0.0
        self._wakes = Listener()

    async def publish(self, experiment: Experiment, version: int, offset: int, blob: bytes) -> None:
        """Replace the value with one SET, then tell the listeners everywhere."""
        value = encode(experiment.experiment_id, CachedSnapshot(version, offset, blob))

        async def send() -> None:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.set(self._key(experiment), value, ex=KEPT_SECONDS)
                pipeline.publish(self._channel(Topic.SNAPSHOT), experiment.name)
                await pipeline.execute()

        await self._guarded("publish", send, len(value))
        self._listeners.tell(Topic.SNAPSHOT, [experiment.name])

    async def forget(self, experiment: Experiment) -> None:
        """Drop the value, then tell the listeners everywhere."""

        async def send() -> None:
            async with self._redis.pipeline(transaction=False) as pipeline:
                pipeline.delete(self._key(experiment))
                pipeline.publish(self._channel(Topic.SNAPSHOT), experiment.name)
                await pipeline.execute()

        await self._guarded("forget", send)
        self._listeners.tell(Topic.SNAPSHOT, [experiment.name])

    async def latest(self, experiment: Experiment) -> CachedSnapshot | None:
        """The snapshot published last by any process; none when Redis fails or has garbage."""
        value = await self._guarded("latest", lambda: self._redis.get(self._key(experiment)))
        if not isinstance(value, bytes):
            return None
        snapshot = decode(experiment.experiment_id, value)
        if snapshot is None:
            self._report("latest", "broken snapshot")
        return snapshot

    def wake(self, experiment: str) -> None:
        """Tell the trainers here at once and those elsewhere soon."""
        self._listeners.tell(Topic.REWARD, [experiment])
        self._wakes.tell([experiment])

    def listen(self, topic: Topic) -> Listener:
        """An ear of its own for what happens from now on."""
        return self._listeners.add(topic)

    async def run(self) -> None:
        """Receive messages, subscribing again whenever needed, and send wake-ups."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive(), name="bus-receive")
            tasks.create_task(self._send_wakes(), name="bus-send")

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def _guarded(
        self, operation: str, command: Callable[[], Awaitable[T]], size_bytes: int = 0
    ) -> T | None:
        if time.monotonic() < self._resume_at:
            return None
        try:
            async with asyncio.timeout(self._options.timeout_seconds + size_bytes / BYTES_A_SECOND):
                return await command()
        except BUS_ERRORS as error:
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
                await asyncio.sleep(WAKE_SECONDS)

    async def _send(self, names: set[str]) -> None:
        async with self._redis.pipeline(transaction=False) as pipeline:
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
                name = message["data"].decode()
                self._listeners.tell(topics[message["channel"]], [name])

    async def _next(self, subscription: PubSub) -> Any:
        heartbeat = self._options.heartbeat_seconds
        message = await subscription.get_message(timeout=heartbeat)
        if message is None:
            # Silence is normal, but a server that is gone is silent too: it must answer now.
            await subscription.ping()
            message = await subscription.get_message(timeout=heartbeat)
        if message is None:
            raise TimeoutError
        return message

    def _key(self, experiment: Experiment) -> str:
        return f"{self._options.prefix}:snapshot:{experiment.experiment_id}"

    def _channel(self, topic: Topic) -> str:
        return f"{self._options.prefix}:{topic.value}"


def _client(url: str, timeout_seconds: float) -> Redis:
    return Redis.from_url(
        url,
        protocol=2,
        socket_connect_timeout=timeout_seconds,
        # The bus decides itself how long to wait and when to try again.
        socket_timeout=None,
        retry=Retry(NoBackoff(), 0),
    )
