"""Restores learners and encoders from storage, completely or not at all."""

import asyncio
import hashlib
import json
import logging
import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from model import (
    Floats,
    Integers,
    Learner,
    Moments,
    Networks,
    SnapshotError,
    restore,
    restore_networks,
)
from service.codec.context_sets import part_contexts, place, rows_a_part, stored_set
from service.codec.decisions import chosen_context
from service.errors import DamagedSnapshot, UnknownCandidate, UnknownSnapshot
from service.experiment_spec import ExperimentSpec
from service.records import (
    CandidateEncoder,
    EventKind,
    Experiment,
    SnapshotRecord,
    StoredEvent,
    StoredSnapshot,
)
from service.storage.candidates import Candidates
from service.storage.events.log import EventLog
from service.storage.events.rows import chunks
from service.storage.snapshots import Snapshots

MOST_ROWS, PAGE_BYTES = 4096, 16 << 20  # limits on the contexts of one query

log = logging.getLogger(__name__)

Stored = TypeVar("Stored", StoredSnapshot, CandidateEncoder)


FIRST_RECIPE = 1  # of snapshots without a recipe


@dataclass(frozen=True, slots=True)
class LoadedLearner:
    """A learner and its snapshot; None for the initial learner."""

    learner: Learner
    record: SnapshotRecord | None = None

    @property
    def version(self) -> int:
        """The version of the snapshot; 0 for none."""
        return self.record.version if self.record else 0

    def refold_reasons(self, spec: ExperimentSpec) -> list[str]:
        """Why a replay of the log would not reproduce this learner; empty if it would."""
        if spec.lost:
            return [f"this feature was removed: {name}" for name in spec.lost]
        if self.record is None:
            return []
        if (recipe := self.record.note.get("recipe", FIRST_RECIPE)) != spec.recipe:
            return [f"version {self.version} was learned by recipe {recipe}"]
        if self.learner.config != spec.bandit_config():
            return [f"version {self.version} was learned under another configuration"]
        return []


@dataclass(frozen=True, slots=True)
class LearnerStore:
    """Loads learners from snapshots and the log."""

    event_log: EventLog
    snapshots: Snapshots
    device: str = "cpu"

    async def load(self, experiment: Experiment, spec: ExperimentSpec) -> LoadedLearner:
        """The learner of the newest valid snapshot, or the initial learner."""
        last_offset = await self.event_log.last_offset(experiment.experiment_id)

        async def loaded(stored: StoredSnapshot) -> LoadedLearner | None:
            learner = await self._restored(stored, spec, last_offset)
            return None if learner is None else LoadedLearner(learner, stored.record)

        found = await self.snapshots.newest_usable(experiment.experiment_id, loaded)
        return found or LoadedLearner(await asyncio.to_thread(self.initial, spec))

    def initial(self, spec: ExperimentSpec) -> Learner:
        """The learner before any event."""
        return Learner(spec.bandit_config(), spec.seed, self.device)

    async def _restored(
        self, stored: StoredSnapshot, spec: ExperimentSpec, last_offset: int
    ) -> Learner | None:
        try:
            _check(stored, last_offset)
            return await self._with_contexts(stored, spec)
        except SnapshotError as error:
            details = {"action": "snapshot_rejected", "reason": str(error)}
            log.exception("a snapshot was rejected", extra=details | stored.record.log_context())
            return None

    async def _with_contexts(self, stored: StoredSnapshot, spec: ExperimentSpec) -> Learner:
        loop = asyncio.get_running_loop()
        experiment_id = stored.record.experiment_id

        def find(references: Integers) -> Floats:
            # Runs in the restoring thread; the event loop reads the log.
            reading = self._contexts(experiment_id, spec, references)
            return asyncio.run_coroutine_threadsafe(reading, loop).result()

        return await asyncio.to_thread(restore, stored.blob, find, self.device)

    async def _contexts(
        self, experiment_id: str, spec: ExperimentSpec, references: Integers
    ) -> Floats:
        """Contexts by reference, read in queries of bounded size."""
        contexts = np.zeros((len(references), *spec.context_shape), dtype=np.float32)
        places = [place(name) for name in references.tolist()]
        for rows in chunks(range(len(places)), _rows_at_once(spec)):
            await self._fill(experiment_id, spec, contexts, [(row, *places[row]) for row in rows])
        return contexts

    async def _fill(
        self,
        experiment_id: str,
        spec: ExperimentSpec,
        contexts: Floats,
        wanted: list[tuple[int, int, int]],
    ) -> None:
        """Fill rows of the contexts; `wanted` are (row, offset in the log, row at that offset)."""
        found = await self.event_log.events_at(experiment_id, {offset for _, offset, _ in wanted})
        uploaded: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for index, offset, row in wanted:
            if offset not in found:
                raise SnapshotError(f"the log has no context at offset {offset}")
            if found[offset].kind is EventKind.CONTEXTS:
                number, row_there = divmod(row, rows_a_part(spec))
                uploaded[offset, number].append((index, row_there))
            else:
                contexts[index] = chosen_context(found[offset], spec)
        for (offset, number), rows in uploaded.items():
            request_id = stored_set(found[offset]).request_id
            part = await self.event_log.contexts_part(experiment_id, request_id, number)
            of_part = part_contexts(part, spec)
            for index, row in rows:
                contexts[index] = of_part[row]


def _rows_at_once(spec: ExperimentSpec) -> int:
    """The number of decisions in a query of bounded size; per-arm decisions have many contexts."""
    arms = max(1, len(spec.arms)) if spec.is_per_arm else 1
    return max(1, min(MOST_ROWS, PAGE_BYTES // (4 * arms * math.prod(spec.context_shape))))


def _check(stored: StoredSnapshot, last_offset: int) -> None:
    if not stored.is_intact:
        raise SnapshotError("the stored bytes have changed")
    if stored.record.offset > last_offset:
        raise SnapshotError("its offset lies beyond the log")


def intact(found: Stored) -> Stored:
    """The snapshot or candidate itself; raises `DamagedSnapshot` if its bytes have changed."""
    if not found.is_intact:
        raise DamagedSnapshot
    return found


async def stored_networks(
    event: StoredEvent, snapshots: Snapshots, candidates: Candidates, device: str
) -> tuple[Networks, Moments]:
    """The networks that a restore or promotion refers to; raises `DamagedSnapshot`."""
    payload = json.loads(event.payload)
    is_restore = event.kind is EventKind.RESTORE
    name = "version" if is_restore else "episode"
    number = int(payload[name])
    try:
        store = snapshots if is_restore else candidates
        stored = await store.get(event.experiment_id, number)
        _check_hash(stored.blob, payload["sha256"])
        return await asyncio.to_thread(restore_networks, stored.blob, device)
    except (UnknownSnapshot, UnknownCandidate, SnapshotError) as error:
        raise DamagedSnapshot(
            f"The {event.kind} at offset {event.offset} needs {name} {number}, which is damaged: "
            f"{error}. Restore its bytes from a backup of the database.",
            **{name: number, "offset": event.offset},
        ) from error


def _check_hash(blob: bytes, logged_hash: str) -> None:
    # Checked against the log's hash, which cannot have changed together with the stored bytes.
    if hashlib.sha256(blob).hexdigest() != logged_hash:
        raise SnapshotError("the stored bytes have changed")
