"""What travels over the snapshot bus, and the ears of those who wait for it."""

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
    """What a listener hears of."""

    SNAPSHOT = "snapshot"
    REWARD = "reward"


@dataclass(frozen=True, slots=True)
class CachedSnapshot:
    """A snapshot as the bus keeps it; the database has the truth."""

    version: int
    offset: int
    blob: bytes


def encode(experiment: str, snapshot: CachedSnapshot) -> bytes:
    """The snapshot as one value that cannot be read half, changed, or under another name."""
    digest = _digest(experiment, snapshot)
    return HEADER.pack(MAGIC, snapshot.version, snapshot.offset, digest) + snapshot.blob


def decode(experiment: str, value: bytes) -> CachedSnapshot | None:
    """The snapshot that `encode` was given, none when anything is wrong with the value."""
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
    """Collects the names of the experiments that something happened to."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._arrived = asyncio.Event()

    def tell(self, experiments: Iterable[str]) -> None:
        """Add the names; whoever waits goes on."""
        self._names.update(experiments)
        if self._names:
            self._arrived.set()

    async def wait(self, timeout_seconds: float) -> set[str]:
        """The names since the last call, each once; empty when there is none in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._arrived.wait()
        self._arrived.clear()
        names, self._names = self._names, set()
        return names


class Listeners:
    """The listeners of one process, by topic; one that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        self._by_topic: dict[Topic, WeakSet[Listener]] = {topic: WeakSet() for topic in Topic}

    def add(self, topic: Topic) -> Listener:
        """A new listener."""
        listener = Listener()
        self._by_topic[topic].add(listener)
        return listener

    def tell(self, topic: Topic, experiments: Iterable[str]) -> None:
        """Tell all listeners of a topic."""
        names = set(experiments)
        for listener in self._by_topic[topic]:
            listener.tell(names)
