"""Replay: fold the log from zero and compare with the stored snapshot byte for byte."""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from model import Learner, Outcome, Recordings, TrainingJob, to_bytes
from service.experiment_spec import ExperimentSpec
from service.learning.dependencies import Provider
from service.learning.fold import Folder
from service.records import Experiment
from service.storage.candidates import Candidates
from service.storage.events.log import EventLog
from service.storage.snapshots import Snapshots

PAGE = 4096


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The hashes of a fold of the log from zero and of the stored snapshot."""

    version: int
    offset: int
    encoder_version: int
    stored_hash: str | None
    replayed_hash: str | None

    @property
    def is_equal(self) -> bool:
        return self.stored_hash == self.replayed_hash


async def replay(
    experiment: Experiment,
    event_log: EventLog,
    snapshots: Snapshots,
    candidates: Candidates,
    device: str = "cpu",
    on_progress: Callable[[int, int], None] = lambda folded, total: None,
) -> ReplayReport:
    """Fold the log up to the newest snapshot's offset and compare.

    `on_progress` gets the events that are folded and all of them, before each training and after each
    page. Raises `DamagedSnapshot` if the log restores a damaged snapshot.
    """
    stored = await snapshots.latest(experiment.experiment_id)
    if stored is None:
        return ReplayReport(0, 0, 0, None, None)
    spec = ExperimentSpec.of(experiment)
    folder = Folder(Learner(spec.bandit_config(), spec.seed, device), spec)
    learner = folder.learner
    recordings = Recordings()

    async def train(job: TrainingJob) -> Outcome:
        on_progress(learner.offset, stored.record.offset)
        return await asyncio.to_thread(job.run, recordings)

    provider = Provider(spec, event_log, snapshots, candidates, device, train)
    while learner.offset < stored.record.offset:
        page = await event_log.read(
            experiment.experiment_id, learner.offset, PAGE, up_to=stored.record.offset
        )
        if not page:
            break  # the snapshot's offset is beyond the log
        await provider.fold(folder, page)
        on_progress(learner.offset, stored.record.offset)
    replayed = to_bytes(learner, stored.record.version, with_contexts=False)
    return ReplayReport(
        version=stored.record.version,
        offset=stored.record.offset,
        encoder_version=learner.encoder_version,
        stored_hash=_hash(stored.blob),
        replayed_hash=_hash(replayed),
    )


def _hash(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
