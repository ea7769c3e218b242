"""Leading an experiment: fold the log, train beside it, publish what came of it."""

import asyncio
import copy
import logging
import time
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from model.gate import is_finite
from model.judging import Judgement
from model.learner import Learner, Outcome, TrainingJob
from model.snapshot import state_hash, to_bytes
from service import tracing
from service.errors import DamagedSnapshot
from service.experiment_spec import ExperimentSpec
from service.failpoints import Failpoint, reach
from service.learning.dependencies import Provider
from service.learning.fold import Folder, conclusion
from service.learning.job_runner import JobRunner
from service.learning.restore import LearnerStore
from service.metrics import Metrics
from service.records import EventKind, Experiment, Lease, NewSnapshot, StoredEvent
from service.snapshot_bus import SnapshotBus, Topic
from service.storage.candidates import Candidates
from service.storage.event_log import EventLog
from service.storage.experiments import Experiments
from service.storage.leases import Leases
from service.storage.snapshots import Snapshots
from service.storage.transfers import Transfers

PAGE = 512

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TrainerOptions:
    """How a trainer works.

    A change that callers can notice is published at most every `publish_seconds`; mere progress
    through the log, every `progress_seconds`. Encoders that follow each other faster than
    `judge_seconds` are not all judged.
    """

    device: str = "cpu"
    poll_seconds: float = 1.0
    lease_seconds: float = 10.0
    kept_snapshots: int = 20
    gather_seconds: float = 0.05
    publish_seconds: float = 0.25
    progress_seconds: float = 5.0
    judge_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class TrainerStores:
    """What a trainer reads and writes."""

    experiments: Experiments
    event_log: EventLog
    snapshots: Snapshots
    candidates: Candidates
    transfers: Transfers
    leases: Leases
    bus: SnapshotBus


@dataclass(frozen=True, slots=True)
class Assignment:
    """An experiment to train and all that is needed for it.

    `runner` trains and judges the encoders; the thread of `executor` waits for it.
    """

    experiment: Experiment
    stores: TrainerStores
    options: TrainerOptions
    metrics: Metrics
    runner: JobRunner
    executor: Executor


class Leadership:
    """One unbroken time of leading: the learner and what is under way with it."""

    def __init__(self, assignment: Assignment, lease: Lease) -> None:
        self._experiment = assignment.experiment
        self._spec = ExperimentSpec.of(assignment.experiment)
        self._stores = assignment.stores
        self._options = assignment.options
        self._metrics = assignment.metrics
        self._runner, self._executor = assignment.runner, assignment.executor
        self._lease = lease
        stores = assignment.stores
        self._provider = Provider(
            self._spec,
            stores.event_log,
            stores.snapshots,
            stores.candidates,
            assignment.options.device,
            self._train,
        )
        self._listener = assignment.stores.bus.listen(Topic.REWARD)
        self._training: asyncio.Future[Outcome] | None = None
        self._training_episode = self._concluded_episode = 0
        self._last_training: dict[str, Any] = {}
        self._judging: tuple[int, asyncio.Future[Judgement]] | None = None
        self._transfer: dict[str, Any] = {}
        self._judge_at = 0.0
        self._is_changed = self._is_blocked = False
        self._published_at = 0.0

    async def begin(self) -> None:
        """Take up where the newest good snapshot ends."""
        store = LearnerStore(self._stores.event_log, self._stores.snapshots, self._options.device)
        stored = await self._stores.snapshots.list(self._experiment.experiment_id, limit=1)
        self._version = stored[0].version if stored else 0
        self._published_offset = stored[0].offset if stored else 0
        if stored:
            self._last_training = dict(stored[0].note.get("last_training", {}))
            self._transfer = dict(stored[0].note.get("transfer", {}))
        learner = await store.load(self._experiment, self._spec)
        # What is published now serves until the learner knows more.
        self._published_offset = min(self._published_offset, learner.offset)
        if learner.config != self._spec.bandit_config():
            learner = self._begun_again(store)
        self._folder = Folder(learner, self._spec)
        details = {
            "action": "leadership_begun",
            "offset": learner.offset,
            "epoch": self._lease.epoch,
        }
        self._metrics.begin_leading(self._experiment.name)
        log.info("leading", extra={**self._experiment.log_context(), **details})

    def _begun_again(self, store: LearnerStore) -> Learner:
        """The learner before any event: an earlier build took the method for something else.

        To go on with its state would come to one that no replay of the log comes to.
        """
        details = {"action": "folding_again", **self._experiment.log_context()}
        log.warning("the method means something else now: folding the log again", extra=details)
        return store.initial(self._spec)

    @property
    def _learner(self) -> Learner:
        return self._folder.learner

    def end(self) -> None:
        """Drop what is under way; a training that runs on is ignored."""
        self._set_blocked(None)
        self._drop_training()
        if self._judging is not None:
            self._judging[1].cancel()

    async def step(self) -> None:
        """Fold a page, see to the training, publish; wait when there is nothing new."""
        events = await self._stores.event_log.read(
            self._experiment.experiment_id, self._learner.offset, PAGE
        )
        if events:
            await self._fold_what_can_be(events)
        await self._tell_lag(is_behind=self._is_blocked or len(events) == PAGE)
        await self._see_to_training()
        await self._see_to_judgement()
        await self._publish_if_due()
        if self._is_blocked:
            await asyncio.sleep(self._options.poll_seconds)
        elif len(events) < PAGE:
            await self._rest()

    async def _fold_what_can_be(self, events: list[StoredEvent]) -> None:
        """Fold up to a restore or promotion that cannot be carried out, which waits until it can be.

        To leave it out would be a state that no replay of the log comes to.
        """
        try:
            await self._fold(events)
            self._set_blocked(None)
        except DamagedSnapshot as error:
            self._set_blocked(error)

    def _set_blocked(self, error: DamagedSnapshot | None) -> None:
        if error is not None and not self._is_blocked:
            details = {"action": "restore_blocked", "reason": error.detail, **error.members}
            log.error("a stored encoder is damaged", extra=details | self._experiment.log_context())
        elif error is None and self._is_blocked:
            details = {"action": "restore_unblocked"}
            log.info("the restore goes on", extra=details | self._experiment.log_context())
        self._is_blocked = error is not None
        self._metrics.set_blocked(self._experiment.name, is_blocked=self._is_blocked)

    async def _tell_lag(self, *, is_behind: bool) -> None:
        """Tell how many events wait; a short page was all there was."""
        lag = 0
        if is_behind:
            head = await self._stores.event_log.head(self._experiment.experiment_id)
            lag = head - self._learner.offset
        self._metrics.set_lag(self._experiment.name, lag)

    async def _fold(self, events: list[StoredEvent]) -> None:
        self._is_changed |= any(event.kind is not EventKind.DECISION for event in events)
        await self._provider.fold(self._folder, events)
        reach(Failpoint.AFTER_FOLD)

    async def _train(self, pending: TrainingJob) -> Outcome:
        return await self._begin_training(pending)

    async def _see_to_training(self) -> None:
        """Begin a pending update; write the end of one that is ready into the log."""
        pending = self._learner.pending
        if pending is None:
            self._training = None
            return
        training = self._begin_training(pending)
        if not training.done() or self._concluded_episode == pending.data.episode:
            return  # still at it, or its end is in the log and yet to be folded
        outcome = training.result()
        self._folder.provide_outcome(outcome)
        event = conclusion(self._experiment.experiment_id, outcome, self._learner.config.gate)
        if event.kind is not EventKind.ACTIVATION:
            await self._keep_candidate(outcome)
        reach(Failpoint.BEFORE_CONCLUSION)
        await self._stores.event_log.append([event], epoch=self._lease.epoch)
        reach(Failpoint.AFTER_CONCLUSION)
        self._last_training = {
            "episode": outcome.episode,
            "losses": outcome.losses,
            "verdict": outcome.verdict.as_dict(),
        }
        self._concluded_episode = outcome.episode

    async def _keep_candidate(self, outcome: Outcome) -> None:
        """Keep an encoder that will not serve, for a person to look at; one that diverged is none."""
        blob = await asyncio.to_thread(_as_if_serving, self._learner, outcome)
        if blob is not None:
            await self._stores.candidates.save(
                self._experiment.experiment_id,
                outcome.episode,
                blob,
                outcome.verdict.as_dict(),
                epoch=self._lease.epoch,
                keep=self._options.kept_snapshots,
            )

    def _begin_training(self, pending: TrainingJob) -> asyncio.Future[Outcome]:
        """The training of this update, which may be under way; one that was given up is dropped."""
        if self._training is not None and self._training_episode == pending.data.episode:
            return self._training
        self._drop_training()
        self._training_episode = pending.data.episode
        started, label = time.monotonic(), self._experiment.name

        def train() -> Outcome:
            with tracing.span("episode", experiment=label, episode=pending.data.episode):
                outcome = self._runner.train(pending)
            seconds = time.monotonic() - started
            is_accepted = outcome.verdict.is_accepted
            self._metrics.observe_episode(label, seconds, outcome.losses, is_accepted=is_accepted)
            details = {"action": "episode_trained", "episode": outcome.episode}
            details |= {"seconds": round(seconds, 3), "accepted": is_accepted}
            log.info("an encoder was trained", extra=details | self._experiment.log_context())
            return outcome

        self._training = asyncio.get_running_loop().run_in_executor(self._executor, train)
        return self._training

    def _drop_training(self) -> None:
        if self._training is not None:
            self._training.cancel()

    async def _see_to_judgement(self) -> None:
        """Judge the transfer of an encoder that was not judged yet, beside all else."""
        if self._judging is not None:
            offset, judging = self._judging
            if judging.done():
                self._judging = None
                await self._keep_judgement(offset, judging.result())
        elif self._is_unjudged() and time.monotonic() >= self._judge_at:
            self._judge_at = time.monotonic() + self._options.judge_seconds
            job = await asyncio.to_thread(self._learner.judging)
            if job is not None:
                loop = asyncio.get_running_loop()
                judging = loop.run_in_executor(self._executor, self._runner.judge, job)
                self._judging = (self._learner.offset, judging)

    def _is_unjudged(self) -> bool:
        return bool(self._transfer.get("encoder_version", 0) != self._learner.encoder_version)

    async def _keep_judgement(self, offset: int, found: Judgement) -> None:
        self._transfer = found.as_dict()
        self._is_changed = True  # the next snapshot tells of it
        figures = found.report.as_dict() | found.signs.as_dict()
        self._metrics.set_transfer(self._experiment.name, figures, found.verdict.word)
        await self._stores.transfers.save(
            self._experiment.experiment_id,
            found.encoder_version,
            offset,
            self._transfer,
            epoch=self._lease.epoch,
        )

    async def _publish_if_due(self) -> None:
        waited = time.monotonic() - self._published_at
        limit = (
            self._options.publish_seconds if self._is_changed else self._options.progress_seconds
        )
        if self._learner.offset > self._published_offset and waited >= limit:
            await self._publish()

    async def _publish(self) -> None:
        learner = self._learner
        snapshot = await asyncio.to_thread(self._snapshot, learner, self._version + 1)
        reach(Failpoint.BEFORE_SNAPSHOT)
        record = await self._stores.snapshots.save(
            self._experiment.experiment_id,
            epoch=self._lease.epoch,
            expected_version=self._version,
            snapshot=snapshot,
        )
        reach(Failpoint.AFTER_SNAPSHOT)
        self._version, self._published_offset = record.version, record.offset
        self._published_at, self._is_changed = time.monotonic(), False
        await self._stores.bus.publish(
            self._experiment.name, record.version, record.offset, snapshot.blob
        )
        reach(Failpoint.AFTER_PUBLISH)
        condition = float(snapshot.note["condition_number"])
        self._metrics.observe_snapshot(self._experiment.name, record.size_bytes, condition)
        if record.version % self._options.kept_snapshots == 0:
            await self._stores.snapshots.prune(
                self._experiment.experiment_id, self._options.kept_snapshots
            )

    def _snapshot(self, learner: Learner, version: int) -> NewSnapshot:
        return NewSnapshot(
            offset=learner.offset,
            encoder_version=learner.encoder_version,
            state_hash=state_hash(learner),
            blob=to_bytes(learner, version, with_contexts=False),
            note=self._note(learner),
        )

    def _note(self, learner: Learner) -> dict[str, Any]:
        contexts, rewards = learner.contexts, learner.reward_counts
        counts = {
            "decisions": sum(each.count for each in contexts.values()) - learner.uploaded_count,
            "folded_rewards": sum(rewards.values()),
        }
        counts |= {f"{domain}_rewards": count for domain, count in rewards.items()}
        counts |= {f"{domain}_contexts": reservoir.count for domain, reservoir in contexts.items()}
        return {
            "counts": counts,
            "phase": learner.phase.value,
            "episode": learner.episode,
            "is_training": learner.pending is not None,
            "last_training": self._last_training,
            "transfer": self._transfer,
            "condition_number": float(learner.statistics.condition_numbers().max()),
        }

    async def _rest(self) -> None:
        """Wait for news of this experiment, for a training's end, or for the next publish or poll."""
        deadline = time.monotonic() + self._options.poll_seconds
        if self._is_changed and self._learner.offset > self._published_offset:
            deadline = min(deadline, self._published_at + self._options.publish_seconds)
        if self._training is not None or self._judging is not None or self._is_unjudged():
            deadline = min(deadline, time.monotonic() + self._options.publish_seconds)
        await asyncio.sleep(
            self._options.gather_seconds
        )  # what comes close together folds together
        while (left := deadline - time.monotonic()) > 0:
            if self._experiment.name in await self._listener.wait(left):
                return
            if self._training is not None and self._training.done():
                return


def _as_if_serving(learner: Learner, outcome: Outcome) -> bytes | None:
    """A snapshot of the learner with a candidate's encoder; none if it holds no numbers."""
    values = (*outcome.networks.state_dict().values(), *outcome.moments.values())
    if not is_finite(*values):
        return None
    other = copy.copy(learner)  # activating replaces what it holds and changes none of it
    other.pending = None
    other.activate(outcome.networks, outcome.moments)
    return to_bytes(other, 0, with_contexts=False)
