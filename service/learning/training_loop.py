"""The training loop of one experiment: fold its log, train encoders in parallel, publish."""

import asyncio
import json
import logging
import time
from typing import Any

from model import (
    RECIPE,
    GateRule,
    Judgement,
    Learner,
    NextUpdate,
    Outcome,
    TrainingJob,
    estimated,
    refused,
)
from service.errors import DamagedSnapshot
from service.experiment_spec import ExperimentSpec
from service.learning.dependencies import Provider
from service.learning.fold import (
    CONCLUSIONS,
    Folder,
    conclusion,
    next_update,
    refold_event,
    training_event,
)
from service.learning.jobs.job import JobFailed, JobRunner
from service.learning.publisher import Publisher
from service.learning.resources import TrainerResources
from service.learning.restore import LearnerStore
from service.ops import tracing
from service.ops.failpoints import Failpoint, reach
from service.records import (
    EventKind,
    Experiment,
    FailureStage,
    LearningFailure,
    Lease,
    StoredEvent,
)

FIRST_ROWS = 16  # rows of the first page, until the size of events is known
PAGE_BYTES = 16 << 20
JUDGING_PAUSE_SECONDS = 600.0  # after a failed judging

log = logging.getLogger(__name__)


class TrainingLoop:
    """Learns one experiment while its lease holds: `begin`, then `step` and `wait` alternately."""

    def __init__(self, experiment: Experiment, lease: Lease, resources: TrainerResources) -> None:
        self._experiment = experiment
        self._lease = lease
        self._stores = stores = resources.stores
        self._options = resources.options
        self._metrics = resources.metrics
        self._jobs = resources.jobs
        self._spec = ExperimentSpec.of(experiment)
        self._publisher = Publisher(experiment, lease, resources)
        self._provider = Provider(
            self._spec,
            stores.event_log,
            stores.snapshots,
            stores.candidates,
            self._options.device,
            self._begin_training,
        )
        self._woken = asyncio.Event()
        self._has_news = self._is_behind = True
        self._page_rows = min(FIRST_ROWS, self._options.page_rows)
        self._training: asyncio.Future[Outcome] | None = None
        self._training_episode = self._concluded_episode = 0
        self._begun_offset = 0  # of the event that begins the newest update that is due
        self._judging: tuple[int, asyncio.Future[Judgement]] | None = None
        self._judge_at = 0.0
        self._tried_offset = -1  # the learner's offset when judging was last tried
        self._is_failing = False
        self._retry_at = 0.0
        self._is_changed = self._is_blocked = False

    async def begin(self) -> None:
        """Continue from the newest valid snapshot."""
        store = LearnerStore(self._stores.event_log, self._stores.snapshots, self._options.device)
        await self._publisher.begin()
        self._set_failure(await self._stores.failures.get(self._experiment.experiment_id))
        if self._spec.stored is None:
            await self._store_config(RECIPE.version)
        loaded = await store.load(self._experiment, self._spec)
        learner = loaded.learner
        # The published policy stays until the learner has passed its offset.
        self._publisher.offset = min(self._publisher.offset, learner.offset)
        if reasons := loaded.refold_reasons(self._spec):
            learner = store.initial(self._spec)
            await self._record_refold(reasons, loaded.version)
        self._publisher.recipe = self._spec.recipe
        self._folder = Folder(learner, self._spec)
        self._metrics.begin_leading(self._experiment.name)
        self._log("leadership_begun", "leading", offset=learner.offset, epoch=self._lease.epoch)

    async def _record_refold(self, reasons: list[str], version: int) -> None:
        """Record in the log that it is folded from its beginning, and by which recipe.

        Continuing from the snapshot would lead to a state that a replay cannot reproduce.
        """
        details = {"action": "folding_again", **self._experiment.log_context()}
        log.warning("folding the log again: %s", "; ".join(reasons), extra=details)
        event = refold_event(self._experiment.experiment_id, self._spec, reasons, version)
        await self._stores.event_log.append([event], epoch=self._lease.epoch)
        if self._spec.lost:
            await self._store_config(RECIPE.version)

    async def _store_config(self, recipe: int) -> None:
        """Store the configuration as this build runs it, for later builds."""
        text = self._spec.bandit_config().to_json()
        self._experiment = await self._stores.experiments.set_config(
            self._experiment.experiment_id, text, recipe, epoch=self._lease.epoch
        )
        self._spec = ExperimentSpec.of(self._experiment)

    @property
    def _learner(self) -> Learner:
        return self._folder.learner

    def wake(self, head_offset: int | None = None) -> None:
        """Read the log again if it may have new events."""
        if head_offset is None or head_offset > self._learner.offset:
            self._has_news = True
            self._woken.set()

    @property
    def is_training(self) -> bool:
        """Whether an encoder update is running, which would be lost if this loop ended."""
        return self._training is not None and self._jobs.is_running(self._training)

    @property
    def is_unfinished(self) -> bool:
        """Whether an update or a judgement is still due; one that is under way would be lost at the end."""
        return self._has_update or self._judging is not None or self._can_judge()

    @property
    def _has_update(self) -> bool:
        """Whether an update is pending or should begin."""
        return self._learner.pending is not None or self._next_update is not None

    @property
    def _next_update(self) -> NextUpdate | None:
        return next_update(self._learner, self._publisher.last_training)

    @property
    def is_idle(self) -> bool:
        """Whether the loop only waits for events or for the end of a pause after a failure."""
        has_work = self._has_news or self._is_blocked or self._judging is not None
        if has_work or self._learner.offset > self._publisher.offset:
            return False
        return not self.is_unfinished or (self._is_pausing() and not self._can_judge())

    def end(self) -> None:
        """Cancel running jobs; the result of a training that cannot be stopped is ignored."""
        self._set_blocked(None)
        self._drop_training()
        if self._judging is not None:
            self._judging[1].cancel()

    async def step(self) -> None:
        """Fold a page if there may be new events, advance training and judging, publish if due."""
        self._woken.clear()
        if self._has_news:
            await self._read_page()
        await self._advance_training()
        self._metrics.set_due_updates(self._experiment.name, self._learner.progress.due_updates)
        await self._advance_judging()
        now = asyncio.get_running_loop().time()
        if self._publisher.due_in(self._learner, now, is_changed=self._is_changed) <= 0:
            self._is_changed = False
            await self._publisher.publish(self._learner, is_unfinished=self.is_unfinished)

    async def finish(self) -> None:
        """Publish unpublished progress before the learner leaves memory."""
        if self._learner.offset > self._publisher.offset:
            await self._publisher.publish(self._learner, is_unfinished=self.is_unfinished)

    async def wait(self, longest_seconds: float) -> None:
        """Wait for new events, for the end of a job, or until something is due."""
        if self._is_blocked:
            await asyncio.sleep(self._options.poll_seconds)
            self._has_news = True
        elif not self._is_behind:
            await _wait_for(self._woken, min(longest_seconds, self._seconds_to_due()))
            # Gather events that arrive shortly after each other into one fold.
            await asyncio.sleep(self._options.gather_seconds)

    def _seconds_to_due(self) -> float:
        """Seconds until a snapshot, a judgement or the end of a pause after a failure is due."""
        now = asyncio.get_running_loop().time()
        seconds = self._publisher.due_in(self._learner, now, is_changed=self._is_changed)
        if self._can_judge() and self._judging is None:
            seconds = min(seconds, self._judge_at - now)
        if self._has_update and self._is_pausing():
            seconds = min(seconds, self._retry_at - now)
        return seconds

    async def _read_page(self) -> None:
        events = await self._stores.event_log.read(
            self._experiment.experiment_id, self._learner.offset, self._page_rows
        )
        self._has_news = self._is_behind = len(events) == self._page_rows
        if events:
            self._page_rows = _fitting_rows(events, self._options.page_rows)
            await self._fold_or_block(events)
        await self._note_lag(is_behind=self._is_blocked or self._is_behind)

    async def _fold_or_block(self, events: list[StoredEvent]) -> None:
        """Fold the events; a restore or promotion that needs damaged bytes blocks the fold.

        Skipping it would lead to a state that a replay cannot reproduce.
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
            self._log("restore_unblocked", "the restore continues")
        self._is_blocked = error is not None
        self._metrics.set_blocked(self._experiment.name, is_blocked=self._is_blocked)

    async def _note_lag(self, *, is_behind: bool) -> None:
        """Set the lag metric; after a short page nothing is left to fold."""
        lag = 0
        if is_behind:
            last_offset = await self._stores.event_log.last_offset(self._experiment.experiment_id)
            lag = last_offset - self._learner.offset
        self._metrics.set_lag(self._experiment.name, lag)

    async def _fold(self, events: list[StoredEvent]) -> None:
        self._is_changed |= any(event.kind is not EventKind.DECISION for event in events)
        await self._provider.fold(self._folder, events)
        for event in events:
            if event.kind in CONCLUSIONS:
                self._publisher.last_training = json.loads(event.payload)
        reach(Failpoint.AFTER_FOLD)

    async def _advance_training(self) -> None:
        """Start a pending update; record the end of a finished one, or the next one, in the log."""
        pending = self._learner.pending
        if pending is None:
            self._drop_training()
            await self._begin_next_update()
            return
        is_concluded = self._concluded_episode == pending.data.episode  # but not folded yet
        if is_concluded or (self._training is None and self._is_pausing()):
            return
        training = self._begin_training(pending)
        if training.done():
            self._training = None
            await self._conclude(pending, training)

    async def _begin_next_update(self) -> None:
        """Write into the log that an update begins, if one should; it begins where that is folded."""
        offset, update = self._learner.offset, self._next_update
        is_written = offset < self._begun_offset  # and yet to be folded
        if update is None or is_written or self._is_pausing():
            return
        event = training_event(self._experiment.experiment_id, offset, update)
        (written,) = await self._stores.event_log.append([event], epoch=self._lease.epoch)
        self._begun_offset = written.event.offset
        self._has_news = True

    async def _conclude(self, pending: TrainingJob, training: "asyncio.Future[Outcome]") -> None:
        try:
            outcome = training.result()
        except JobFailed as error:
            outcome = _refused_for(pending, error)
            await self._note_failure(str(error), outcome.episode)
        else:
            await self._note_success()
            if not self._will_serve(outcome):
                await self._publisher.keep_candidate(self._learner, outcome)
        self._folder.provide_outcome(outcome)
        event = conclusion(
            self._experiment.experiment_id,
            outcome,
            self._learner.config.gate,
            pending.data.contexts,
        )
        reach(Failpoint.BEFORE_CONCLUSION)
        await self._stores.event_log.append([event], epoch=self._lease.epoch)
        reach(Failpoint.AFTER_CONCLUSION)
        self._concluded_episode = outcome.episode
        self._has_news = True

    def _will_serve(self, outcome: Outcome) -> bool:
        return outcome.verdict.is_accepted and self._learner.config.gate is GateRule.AUTO

    async def _note_failure(self, reason: str, episode: int) -> None:
        text = f"Training of episode {episode} failed: {reason}."
        experiment_id = self._experiment.experiment_id
        failure = await self._stores.failures.record(experiment_id, FailureStage.TRAINING, text)
        self._set_failure(failure)
        facts = {"episode": episode, "reason": reason, "failures": failure.failures}
        details = {"action": "episode_failed", **self._experiment.log_context(), **facts}
        log.error("an encoder could not be trained", extra=details)

    async def _note_success(self) -> None:
        if self._is_failing:
            await self._stores.failures.clear(self._experiment.experiment_id)
            self._set_failure(None)

    def _set_failure(self, failure: LearningFailure | None) -> None:
        self._is_failing = failure is not None
        pause = 0.0 if failure is None else failure.pause_seconds
        self._retry_at = asyncio.get_running_loop().time() + pause

    def _is_pausing(self) -> bool:
        """Whether the next update waits because the last one failed."""
        return self._is_failing and asyncio.get_running_loop().time() < self._retry_at

    def _drop_training(self) -> None:
        if self._training is not None:
            self._training.cancel()
            self._training = None

    def _begin_training(self, pending: TrainingJob) -> "asyncio.Future[Outcome]":
        """The training of this update, started if necessary; another update's training is dropped."""
        episode = pending.data.episode
        if self._training is not None and self._training_episode == episode:
            return self._training
        self._drop_training()
        self._training_episode = episode

        def work(runner: JobRunner, deadline: float) -> Outcome:
            return self._train(pending, runner, deadline)

        seconds = estimated(pending.config, len(pending.data.rounds)).update_seconds
        self._training = self._jobs.submit(self._experiment.experiment_id, work, seconds)
        self._training.add_done_callback(lambda _: self._woken.set())
        return self._training

    def _train(self, pending: TrainingJob, runner: JobRunner, deadline: float) -> Outcome:
        """Run in a thread, which waits for the training process."""
        started, name, episode = time.monotonic(), self._experiment.name, pending.data.episode
        with tracing.span("episode", experiment=name, episode=episode):
            outcome = runner.train(pending, deadline)
        seconds, is_accepted = time.monotonic() - started, outcome.verdict.is_accepted
        self._metrics.observe_episode(name, seconds, outcome.losses, is_accepted=is_accepted)
        facts = {"episode": episode, "seconds": round(seconds, 3), "accepted": is_accepted}
        self._log("episode_trained", "an encoder was trained", **facts)
        return outcome

    async def _advance_judging(self) -> None:
        """Start to judge an encoder that was not judged yet; keep a finished judgement."""
        now = asyncio.get_running_loop().time()
        if self._judging is not None:
            offset, judging = self._judging
            if judging.done():
                self._judging = None
                await self._keep_judgement(offset, judging)
        elif self._can_judge() and now >= self._judge_at:
            self._judge_at = now + self._options.judge_seconds
            await self._begin_judging()

    async def _begin_judging(self) -> None:
        self._tried_offset = self._learner.offset
        job = await asyncio.to_thread(self._learner.judging, self._spec.arms)
        if job is None:
            return  # too little data
        found = job

        def work(runner: JobRunner, deadline: float) -> Judgement:
            return runner.judge(found, deadline)

        owner = f"{self._experiment.experiment_id}:judging"
        judging = self._jobs.submit(owner, work, expected_seconds=1.0)
        judging.add_done_callback(lambda _: self._woken.set())
        self._judging = (self._learner.offset, judging)

    async def _keep_judgement(self, offset: int, judging: "asyncio.Future[Judgement]") -> None:
        try:
            found = judging.result()
        except JobFailed as error:
            self._log("judging_failed", "an encoder's transfer was not judged", reason=str(error))
            self._judge_at = asyncio.get_running_loop().time() + JUDGING_PAUSE_SECONDS
            # Published even if nothing else is new: no caller may be waiting for it.
            self._publisher.failed_version = self._learner.encoder_version
            await self._publisher.publish(self._learner, is_unfinished=self.is_unfinished)
            return
        self._is_changed = True  # the next snapshot's note includes it
        await self._publisher.keep_judgement(offset, found)

    def _can_judge(self) -> bool:
        """Whether the served encoder was not judged yet and the log has grown since the last attempt."""
        judged = self._publisher.transfer.get("encoder_version", 0)
        is_unjudged = bool(judged != self._learner.encoder_version)
        return is_unjudged and self._tried_offset != self._learner.offset

    def _log(self, action: str, message: str, **facts: Any) -> None:
        log.info(message, extra={"action": action, **self._experiment.log_context(), **facts})


def _refused_for(pending: TrainingJob, error: JobFailed) -> Outcome:
    """The outcome of a failed update: refused, with the encoder that it started from."""
    verdict = refused(f"training failed: {error}")
    return Outcome(pending.data.episode, pending.networks, pending.moments, {}, verdict)


def _fitting_rows(events: list[StoredEvent], most: int) -> int:
    """The number of such events in a page of bounded size."""
    size = sum(len(event.payload) + len(event.context or b"") for event in events)
    return max(1, min(most, PAGE_BYTES * len(events) // max(1, size)))


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(None if seconds == float("inf") else seconds):
            await event.wait()
    except TimeoutError:
        return
