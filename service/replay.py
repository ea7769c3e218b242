"""Replay: fold the log from zero and compare with what is stored, byte for byte."""

import asyncio
import hashlib
from dataclasses import dataclass

from model.learner import Learner
from model.snapshot import to_bytes
from service.experiment_spec import ExperimentSpec
from service.folding import Folder
from service.records import EventKind, Experiment, StoredEvent
from service.restores import restored_networks
from service.storage.event_log import EventLog
from service.storage.snapshots import Snapshots

PAGE = 1024


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """A fold of the log from zero beside the stored snapshot; hashes are of all their bytes."""

    version: int
    offset: int
    encoder_version: int
    stored_hash: str | None
    replayed_hash: str | None

    @property
    def is_equal(self) -> bool:
        """Whether both are the same."""
        return self.stored_hash == self.replayed_hash


async def replay(
    experiment: Experiment, event_log: EventLog, snapshots: Snapshots, device: str = "cpu"
) -> ReplayReport:
    """Fold the log up to the newest snapshot's offset and compare.

    `DamagedSnapshot` when the log goes back to a snapshot that is damaged: there is no telling.
    """
    stored = await snapshots.latest(experiment.experiment_id)
    if stored is None:
        return ReplayReport(0, 0, 0, None, None)
    spec = ExperimentSpec.of(experiment)
    folder = Folder(Learner(spec.bandit_config(), spec.seed, device), spec)
    learner = folder.learner
    while learner.offset < stored.record.offset:
        page = await event_log.read(
            experiment.experiment_id, learner.offset, PAGE, up_to=stored.record.offset
        )
        if not page:
            break  # the snapshot claims more than the log holds
        await _fold(folder, page, snapshots, device)
    replayed = to_bytes(learner, stored.record.version, with_contexts=False)
    return ReplayReport(
        version=stored.record.version,
        offset=stored.record.offset,
        encoder_version=learner.encoder_version,
        stored_hash=_hash(stored.blob),
        replayed_hash=_hash(replayed),
    )


async def _fold(folder: Folder, page: list[StoredEvent], snapshots: Snapshots, device: str) -> None:
    left = await asyncio.to_thread(folder.fold, page)
    while left:
        event = left[0]
        if event.kind is EventKind.ACTIVATION:
            pending = folder.learner.pending
            assert pending is not None  # noqa: S101 - the fold stopped at a pending update
            folder.provide_outcome(await asyncio.to_thread(pending.run))
        else:
            networks, moments = await restored_networks(event, snapshots, device)
            folder.provide_networks(event.offset, networks, moments)
        left = await asyncio.to_thread(folder.fold, left)


def _hash(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
