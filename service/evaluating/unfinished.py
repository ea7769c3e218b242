"""Finishes histories that were accepted and whose import was interrupted."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from service.bus.bus import SnapshotBus
from service.errors import DamagedArchive, StorageUnavailable, UnknownExperiment
from service.evaluating.history import HistoryImport
from service.records import utc_now
from service.storage.events.history_parts import HistoryParts, PendingHistory
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments

ABANDONED = timedelta(days=1)  # parts of a history that was never accepted

log = logging.getLogger(__name__)


class UnfinishedHistories:
    """Looks every `poll_seconds` for parts that nobody writes; meant for a supervisor.

    A history is nobody's if no part of it was written between two looks. If a slow process writes it
    after all, both write the same rounds under the same keys, in the same order.
    """

    def __init__(
        self,
        parts: HistoryParts,
        experiments: Experiments,
        event_log: EventLog,
        bus: SnapshotBus,
        poll_seconds: float = 5.0,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._parts = parts
        self._experiments = experiments
        self._event_log = event_log
        self._bus = bus
        self._poll_seconds = poll_seconds
        self._now = now
        self._seen: frozenset[PendingHistory] = frozenset()

    async def run(self) -> None:
        """Finish histories until cancelled."""
        while True:
            try:
                await self.step()
            except StorageUnavailable:
                log.warning("storage is unavailable", extra={"action": "histories_wait"})
            await asyncio.sleep(self._poll_seconds)

    async def step(self) -> None:
        """Look once, and finish what stood still since the last look."""
        pending = frozenset(await self._parts.pending())
        stalled, self._seen = pending & self._seen, pending
        for history in sorted(stalled, key=lambda each: each.stored_at):
            await self._finish(history)

    async def _finish(self, history: PendingHistory) -> None:
        try:
            experiment = await self._experiments.get_by_id(history.experiment_id)
            work = HistoryImport(self._event_log, self._parts, experiment)
            if await work.is_accepted(history.sha256):
                await work.finish(history.sha256)
                self._bus.wake(experiment.name)
                details = {"action": "history_finished", "experiment": experiment.name}
                log.info("an interrupted import is finished", extra=details)
            else:
                before = self._now() - ABANDONED
                await self._parts.delete_before(history.experiment_id, history.sha256, before)
        except UnknownExperiment:
            return  # deleted; its parts are erased with it
        except DamagedArchive as error:
            details = {"action": "histories_wait", "reason": str(error)}
            log.warning("archived rounds cannot be read", extra=details)
