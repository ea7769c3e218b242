"""The messages of the snapshot bus and their listeners."""

import asyncio
import hashlib
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from weakref import WeakSet

MAGIC = b"DABANDS1"
HEADER = struct.Struct(">8sQQ32s")  # magic, version, offset, SHA-256


class Topic(StrEnum):
    """The subject of a message."""

    SNAPSHOT = "snapshot"
    REWARD = "reward"


@dataclass(frozen=True, slots=True)
class CachedSnapshot:
    """A snapshot in the bus's cache; the database is authoritative."""

    version: int
    offset: int
    blob: bytes


def encode(experiment: str, snapshot: CachedSnapshot) -> bytes:
    """The snapshot as one value, protected against truncation, changes and use for another experiment."""
    digest = _digest(experiment, snapshot)
    return HEADER.pack(MAGIC, snapshot.version, snapshot.offset, digest) + snapshot.blob


def decode(experiment: str, value: bytes) -> CachedSnapshot | None:
    """The inverse of `encode`; None if the value is invalid."""
    if len(value) < HEADER.size:
        return None
    magic, version, offset, digest = HEADER.unpack_from(value)
    snapshot = CachedSnapshot(version, offset, value[HEADER.size :])
    if magic != MAGIC or digest != _digest(experiment, snapshot):
        return None
    return snapshot


def _digest(experiment: str, snapshot: CachedSnapshot) -> bytes:
    name = experiment.encode()
    facts = struct.pack(">QQQ", len(name), snapshot.version, snapshot.offset)
    return hashlib.sha256(facts + name + snapshot.blob).digest()


class Listener:
    """Collects the names of experiments with news."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._arrived = asyncio.Event()

    def notify(self, experiments: Iterable[str]) -> None:
        """Add names and wake the waiter."""
        self._names.update(experiments)
        if self._names:
            self._arrived.set()

    async def wait(self, timeout_seconds: float) -> set[str]:
        """The names since the last call; empty if none arrive in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._arrived.wait()
        self._arrived.clear()
        names, self._names = self._names, set()
        return names


class Listeners:
    """The listeners of one process by topic, held by weak references."""

    def __init__(self) -> None:
        self._by_topic: dict[Topic, WeakSet[Listener]] = {topic: WeakSet() for topic in Topic}

    def add(self, topic: Topic) -> Listener:
        listener = Listener()
        self._by_topic[topic].add(listener)
        return listener

    def notify(self, topic: Topic, experiments: Iterable[str]) -> None:
        names = set(experiments)
        for listener in self._by_topic[topic]:
            listener.notify(names)
