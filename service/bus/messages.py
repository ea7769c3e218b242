"""The messages of the snapshot bus and their listeners; nothing that comes from Redis is believed."""

import asyncio
import hmac
import struct
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from weakref import WeakSet

from service.auth.tenants import is_full_name
from service.bus.refusals import Refusal

FORMAT = b"DABANDS"  # the same in all builds
MAGIC = FORMAT + b"2"
HEADER = struct.Struct(">8sqq32s")  # magic, version, offset, HMAC-SHA256
READ_BYTES = 256  # of a message: more than the longest name has
MOST_NAMES = 1000  # that a listener keeps; the others are found by polling
NEWS_SECONDS = 0.02  # news within this time are one answer of a listener


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


def encode(key: bytes, experiment_id: str, snapshot: CachedSnapshot) -> bytes:
    """The snapshot as one value, signed together with its experiment, version and offset."""
    signature = _signature(key, experiment_id, snapshot)
    return HEADER.pack(MAGIC, snapshot.version, snapshot.offset, signature) + snapshot.blob


def decode(key: bytes, experiment_id: str, value: bytes) -> CachedSnapshot | Refusal:
    """The inverse of `encode`, or why the value is refused."""
    if value.startswith(FORMAT) and not value.startswith(MAGIC):
        return Refusal.FORMAT
    if len(value) < HEADER.size:
        return Refusal.SIGNATURE
    magic, version, offset, signature = HEADER.unpack_from(value)
    snapshot = CachedSnapshot(version, offset, value[HEADER.size :])
    is_signed = hmac.compare_digest(signature, _signature(key, experiment_id, snapshot))
    return snapshot if magic == MAGIC and is_signed else Refusal.SIGNATURE


def _signature(key: bytes, experiment_id: str, snapshot: CachedSnapshot) -> bytes:
    name = experiment_id.encode()
    facts = struct.pack(">Qqq", len(name), snapshot.version, snapshot.offset)
    signature = hmac.new(key, MAGIC + facts + name, "sha256")
    signature.update(snapshot.blob)
    return signature.digest()


def name_in(message: bytes) -> str | None:
    """The experiment's full name; None for what cannot be one."""
    name = message[:READ_BYTES].decode(errors="replace")
    return name if is_full_name(name) else None


class Listener:
    """Collects the names of experiments with news; a flood of names neither fills memory nor hurries it."""

    def __init__(self, pause_seconds: float = NEWS_SECONDS) -> None:
        self._pause_seconds = pause_seconds
        self._names: set[str] = set()
        self._arrived = asyncio.Event()
        self._resume_at = 0.0

    def notify(self, experiments: Iterable[str]) -> None:
        """Add names, while there is room, and wake the waiter."""
        if len(self._names) < MOST_NAMES:
            self._names.update(experiments)
        if self._names:
            self._arrived.set()

    async def wait(self, timeout_seconds: float) -> set[str]:
        """The names since the last call, a pause after the last ones; empty if none arrive in time."""
        loop = asyncio.get_running_loop()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await asyncio.sleep(self._resume_at - loop.time())
                await self._arrived.wait()
        self._arrived.clear()
        names, self._names = self._names, set()
        if names:
            self._resume_at = loop.time() + self._pause_seconds
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
