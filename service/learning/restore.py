"""Brings learners and encoders back from storage, whole or not at all."""

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
from service.codec.context_sets import contexts_said, part_contexts, place, rows_a_part
from service.codec.decisions import chosen_context
from service.errors import DamagedSnapshot, UnknownCandidate, UnknownSnapshot
from service.experiment_spec import ExperimentSpec
from service.records import (
    Candidate,
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

MOST_ROWS, PAGE_BYTES = 4096, 16 << 20  # of contexts that are read at once

log = logging.getLogger(__name__)

Stored = TypeVar("Stored", StoredSnapshot, Candidate)


FIRST_RECIPE = 1  # of snapshots that say nothing of a recipe


@dataclass(frozen=True, slots=True)
class LoadedLearner:
    """A learner, and the snapshot that it came from; none for the one before any event."""

    learner: Learner
    record: SnapshotRecord | None = None

    @property
    def version(self) -> int:
        """The version of the snapshot; 0 for none."""
        return self.record.version if self.record else 0

    def reasons_to_begin_again(self, spec: ExperimentSpec) -> list[str]:
        """Why no replay of the log would come to where this learner goes on to; empty if one would."""
        if spec.lost:
            return [f"no code does this any more: {name}" for name in spec.lost]
        if self.record is None:
            return []
        if (recipe := self.record.note.get("recipe", FIRST_RECIPE)) != spec.recipe:
            return [f"version {self.version} was learned by recipe {recipe}"]
        if self.learner.config != spec.bandit_config():
            return [f"version {self.version} was learned under another configuration"]
        return []


@dataclass(frozen=True, slots=True)
class LearnerStore:
    """Where learners come from."""

    event_log: EventLog
    snapshots: Snapshots
    device: str = "cpu"

    async def load(self, experiment: Experiment, spec: ExperimentSpec) -> LoadedLearner:
        """The learner of the newest snapshot that can be trusted, or the one before any event."""
        head = await self.event_log.head(experiment.experiment_id)
        stored = await self.snapshots.latest(experiment.experiment_id)
        while stored is not None:
            if (learner := await self._restored(stored, spec, head)) is not None:
                return LoadedLearner(learner, stored.record)
            version = stored.record.version - 1
            stored = await self.snapshots.newest_at_or_before(experiment.experiment_id, version)
        return LoadedLearner(await asyncio.to_thread(self.initial, spec))

    def initial(self, spec: ExperimentSpec) -> Learner:
        """The learner before any event."""
        return Learner(spec.bandit_config(), spec.seed, self.device)

    async def _restored(
        self, stored: StoredSnapshot, spec: ExperimentSpec, head: int
    ) -> Learner | None:
        try:
            _check(stored, head)
            return await self._with_contexts(stored, spec)
        except SnapshotError as error:
            details = {"action": "snapshot_rejected", "reason": str(error)}
            log.exception("a snapshot was rejected", extra=details | stored.record.log_context())
            return None

    async def _with_contexts(self, stored: StoredSnapshot, spec: ExperimentSpec) -> Learner:
        loop = asyncio.get_running_loop()
        experiment_id = stored.record.experiment_id

        def find(references: Integers) -> Floats:
            # Runs in the thread that restores; the log is read by the loop.
            reading = self._contexts(experiment_id, spec, references)
            return asyncio.run_coroutine_threadsafe(reading, loop).result()

        return await asyncio.to_thread(restore, stored.blob, find, self.device)

    async def _contexts(
        self, experiment_id: str, spec: ExperimentSpec, references: Integers
    ) -> Floats:
        """Contexts by reference, read a bounded number of bytes at a time."""
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
        """Fill rows of the contexts, each wanted from an offset of the log and a row there."""
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
            request_id = contexts_said(found[offset]).request_id
            part = await self.event_log.contexts_part(experiment_id, request_id, number)
            of_part = part_contexts(part, spec)
            for index, row in rows:
                contexts[index] = of_part[row]


def _rows_at_once(spec: ExperimentSpec) -> int:
    """How many decisions make a query of bounded size; with contexts by arm each brings many."""
    arms = max(1, len(spec.arms)) if spec.is_per_arm else 1
    return max(1, min(MOST_ROWS, PAGE_BYTES // (4 * arms * math.prod(spec.context_shape))))


def _check(stored: StoredSnapshot, head: int) -> None:
    if not stored.is_intact:
        raise SnapshotError("the stored bytes have changed")
    if stored.record.offset > head:
        raise SnapshotError("its offset lies beyond the log")


def intact(found: Stored) -> Stored:
    """What was found, if its bytes are those that were saved; `DamagedSnapshot` otherwise."""
    if not found.is_intact:
        raise DamagedSnapshot
    return found


async def stored_networks(
    event: StoredEvent, snapshots: Snapshots, candidates: Candidates, device: str
) -> tuple[Networks, Moments]:
    """What an event of the log goes back to; `DamagedSnapshot` if that is not there as it was."""
    said = json.loads(event.payload)
    is_restore = event.kind is EventKind.RESTORE
    name = "version" if is_restore else "episode"
    number = int(said[name])
    try:
        store = snapshots if is_restore else candidates
        stored = await store.get(event.experiment_id, number)
        _check_hash(stored.blob, said["sha256"])
        return await asyncio.to_thread(restore_networks, stored.blob, device)
    except (UnknownSnapshot, UnknownCandidate, SnapshotError) as error:
        raise DamagedSnapshot(
            f"The {event.kind} at offset {event.offset} needs {name} {number}, which is damaged: "
            f"{error}. Bring its bytes back from a backup of the database.",
            **{name: number, "offset": event.offset},
        ) from error


def _check_hash(blob: bytes, logged_hash: str) -> None:
    # The hash in the log is the one that counts: it cannot have changed with the stored bytes.
    if hashlib.sha256(blob).hexdigest() != logged_hash:
        raise SnapshotError("the stored bytes have changed")
