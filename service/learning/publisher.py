"""Publishes the results of learning one experiment: snapshots, candidates, judgements."""

import asyncio
import copy
from typing import Any

from model import (
    Judgement,
    Learner,
    Outcome,
    TrainingJob,
    is_finite,
    state_hash,
    to_bytes,
)
from service.learning.fold import next_update
from service.learning.resources import TrainerResources
from service.ops.failpoints import Failpoint, reach
from service.records import Experiment, Lease, NewSnapshot, SnapshotRecord


class Publisher:
    """Writes with the lease's epoch; the database refuses writes after another trainer takes over."""

    def __init__(self, experiment: Experiment, lease: Lease, resources: TrainerResources) -> None:
        self._experiment = experiment
        self._lease = lease
        self._stores = resources.stores
        self._options = resources.options
        self._metrics = resources.metrics
        self._pace = resources.pace
        self._version = 0
        self._published_at = 0.0
        self._size_bytes = 0
        self.offset = 0  # of the newest snapshot
        self.recipe = 0  # of the learner
        self.last_training: dict[str, Any] = {}
        self.transfer: dict[str, Any] = {}
        self.failed_version = 0  # the encoder that could not be judged

    async def begin(self) -> None:
        """Continue from the newest snapshot."""
        stored = await self._stores.snapshots.list(self._experiment.experiment_id, limit=1)
        if stored:
            self._version, self.offset = stored[0].version, stored[0].offset
            self.last_training = dict(stored[0].note.get("last_training", {}))
            self.transfer = dict(stored[0].note.get("transfer", {}))

    def due_in(self, learner: Learner, now: float, *, is_changed: bool) -> float:
        """Seconds until the learner should be published; infinite if there is nothing new."""
        if learner.offset <= self.offset:
            return float("inf")
        options = self._options
        pause = options.publish_seconds if is_changed else options.progress_seconds
        pace = self._pace.seconds_to_free(now, self._size_bytes)
        return max(self._published_at + pause - now, pace)

    async def publish(self, learner: Learner, *, is_unfinished: bool) -> None:
        """Save the learner's snapshot and notify serving processes."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        snapshot = await asyncio.to_thread(self._snapshot, learner, is_unfinished)
        reach(Failpoint.BEFORE_SNAPSHOT)
        record = await self._stores.snapshots.save(
            self._experiment.experiment_id,
            epoch=self._lease.epoch,
            expected_version=self._version,
            snapshot=snapshot,
        )
        reach(Failpoint.AFTER_SNAPSHOT)
        self._version, self.offset = record.version, record.offset
        await self._stores.bus.publish(
            self._experiment, record.version, record.offset, snapshot.blob
        )
        reach(Failpoint.AFTER_PUBLISH)
        self._published_at = loop.time()
        self._size_bytes = len(snapshot.blob)
        self._pace.note(self._published_at, self._size_bytes, self._published_at - began)
        await self._note(record, float(snapshot.note["condition_number"]))

    async def keep_candidate(self, learner: Learner, outcome: Outcome) -> None:
        """Keep an encoder that is not served for inspection, unless it diverged."""
        blob = await asyncio.to_thread(_as_if_serving, learner, outcome)
        if blob is not None:
            await self._stores.candidates.save(
                self._experiment.experiment_id,
                outcome.episode,
                blob,
                outcome.verdict.as_dict(),
                epoch=self._lease.epoch,
                keep=self._options.kept_snapshots,
            )

    async def keep_judgement(self, offset: int, found: Judgement) -> None:
        """Keep the judgement of an encoder's transfer; the next snapshot's note includes it."""
        self.transfer = found.as_dict()
        self._metrics.set_transfer(self._experiment.name, found)
        await self._stores.transfers.save(
            self._experiment.experiment_id,
            found.encoder_version,
            offset,
            self.transfer,
            epoch=self._lease.epoch,
        )

    async def _note(self, record: SnapshotRecord, condition: float) -> None:
        self._metrics.observe_snapshot(self._experiment.name, record.size_bytes, condition)
        if record.version % self._options.kept_snapshots == 0:
            await self._stores.snapshots.prune(
                self._experiment.experiment_id, self._options.kept_snapshots
            )

    def _snapshot(self, learner: Learner, is_unfinished: bool) -> NewSnapshot:
        return NewSnapshot(
            offset=learner.offset,
            encoder_version=learner.encoder_version,
            state_hash=state_hash(learner),
            blob=to_bytes(learner, self._version + 1, with_contexts=False),
            is_unfinished=is_unfinished,
            note=self._described(learner),
        )

    def _described(self, learner: Learner) -> dict[str, Any]:
        contexts, rewards = learner.contexts, learner.reward_counts
        is_running = learner.pending is not None
        counts = {
            "decisions": sum(each.count for each in contexts.values()) - learner.uploaded_count,
            "folded_rewards": sum(rewards.values()),
        }
        counts |= {f"{domain}_rewards": count for domain, count in rewards.items()}
        counts |= {f"{domain}_contexts": reservoir.count for domain, reservoir in contexts.items()}
        return {
            "recipe": self.recipe,
            "counts": counts,
            "phase": learner.phase.value,
            "episode": learner.episode,
            "is_training": is_running or next_update(learner, self.last_training) is not None,
            "due_updates": learner.progress.due_updates,
            "running_update": _described_update(learner.pending) if learner.pending else None,
            "last_training": self.last_training,
            "transfer": self.transfer,
            "judgement": self._judgement(learner),
            "condition_number": float(learner.statistics.condition_numbers().max()),
        }

    def _judgement(self, learner: Learner) -> str:
        """Whether a judgement follows; that it is done is known by its record."""
        if not learner.encoder_version or not learner.can_be_judged:
            return "none"
        return "failed" if learner.encoder_version == self.failed_version else "due"


def _described_update(pending: TrainingJob) -> dict[str, int]:
    """What an update under way was begun with."""
    data = pending.data
    return {
        "episode": data.episode,
        "rewards": len(data.rounds),
        "target_contexts": data.contexts.target,
    }


def _as_if_serving(learner: Learner, outcome: Outcome) -> bytes | None:
    """A snapshot of the learner with a candidate's encoder; None if it is not finite."""
    values = (*outcome.networks.state_dict().values(), *outcome.moments.values())
    if not is_finite(*values):
        return None
    other = copy.copy(learner)  # a shallow copy: `activate` replaces attributes and mutates none
    other.pending = None
    other.activate(outcome.networks, outcome.moments)
    return to_bytes(other, 0, with_contexts=False)
