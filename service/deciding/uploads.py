"""Writes sets of unlabeled target contexts to the log, completely or not at all."""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from tempfile import SpooledTemporaryFile
from typing import IO

import numpy as np

from model import Floats
from service.bus.bus import SnapshotBus
from service.codec.context_sets import ContextSet, rows_a_part
from service.codec.decisions import context_bytes
from service.deciding.policies import Served
from service.errors import InvalidRequest, RequestConflict
from service.experiment_spec import ExperimentSpec
from service.metrics import Metrics
from service.records import CONTEXT_TYPE, Appended, EventKind, NewEvent
from service.storage.events.log import EventLog
from service.unpacking import MAX_ROWS, MAX_SPOOLED_BYTES

PARTS_A_WRITE = 16  # other writers can write in between
MEMORY_BYTES = 8 << 20


class Spool(AbstractContextManager["Spool"]):
    """Checked contexts of an upload in a temporary file, until all of them have arrived."""

    def __init__(self, spec: ExperimentSpec) -> None:
        self._spec = spec
        self._file: IO[bytes] = SpooledTemporaryFile(MEMORY_BYTES)  # noqa: SIM115 - closed on exit
        self._digest = hashlib.sha256()
        self._size = 0
        self.rows = 0

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, contexts: Floats) -> None:
        """Add validated contexts (n, *shape)."""
        self.rows += len(contexts)
        if self.rows > MAX_ROWS:
            raise InvalidRequest(f"An upload has at most {MAX_ROWS} contexts.")
        content = context_bytes(np.ascontiguousarray(contexts))
        self._size += len(content)
        if self._size > MAX_SPOOLED_BYTES:
            raise InvalidRequest(
                f"The contexts of an upload have at most {MAX_SPOOLED_BYTES >> 30} GiB as float32."
            )
        self._digest.update(content)
        self._file.write(content)

    def digest(self) -> str:
        """A digest that depends only on the contexts, not on their encoding or batches."""
        return self._digest.hexdigest()

    def parts(self) -> Iterator[tuple[int, bytes]]:
        """Row count and bytes of each part."""
        self._file.seek(0)
        size = rows_a_part(self._spec)
        row_bytes = int(np.prod(self._spec.context_shape)) * CONTEXT_TYPE.itemsize
        while content := self._file.read(size * row_bytes):
            yield len(content) // row_bytes, content


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored set of contexts."""

    request_id: str
    rows: int
    appended: Appended

    def answer(self, experiment: str) -> dict[str, object]:
        return {
            "experiment": experiment,
            "request_id": self.request_id,
            "status": self.appended.status,
            "contexts": self.rows,
            "offset": self.appended.event.offset,
        }


class Uploading:
    """Writes sets of contexts; a repeated set under the same request id is written once."""

    def __init__(self, event_log: EventLog, bus: SnapshotBus, metrics: Metrics) -> None:
        self._event_log = event_log
        self._bus = bus
        self._metrics = metrics

    async def store(self, served: Served, request_id: str, contexts: Floats) -> Stored:
        """Write a small set (n, *shape)."""
        with Spool(served.spec) as spool:
            spool.add(contexts)
            return await self.store_spooled(served, request_id, spool)

    async def store_spooled(self, served: Served, request_id: str, spool: Spool) -> Stored:
        """Write a set part by part; parts of an interrupted attempt are not written again."""
        made = ContextSet(served.experiment.experiment_id, request_id)
        before = await self._event_log.find(EventKind.CONTEXTS, made.key())
        if before is not None:
            if before.request_hash != spool.digest():
                raise RequestConflict
            return Stored(request_id, spool.rows, Appended(before, created=False))
        events: list[NewEvent] = []
        count = 0
        for rows, content in spool.parts():
            events.append(made.part(count, rows, content))
            count += 1
            if len(events) == PARTS_A_WRITE:
                await self._event_log.append(events)
                events = []
                await asyncio.sleep(0)
        events.append(made.completion(spool.rows, count, spool.digest()))
        *_, last = await self._event_log.append(events)
        if last.created:
            name = served.experiment.name
            self._bus.wake(name)
            self._metrics.count_target_contexts(name, spool.rows)
        return Stored(request_id, spool.rows, last)
