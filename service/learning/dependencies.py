"""Provides what a fold needs: a trained encoder, a stored encoder, or the parts of a set of contexts.

The trainer and replay share this code, so that they cannot differ.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from model import Outcome, TrainingJob
from service.codec.context_sets import completed, part_contexts
from service.experiment_spec import ExperimentSpec
from service.learning.fold import Folder
from service.learning.restore import stored_networks
from service.records import EventKind, StoredEvent
from service.storage.candidates import Candidates
from service.storage.events.log import EventLog
from service.storage.snapshots import Snapshots


@dataclass(frozen=True, slots=True)
class Provider:
    """The sources of these dependencies; `train` runs a pending update."""

    spec: ExperimentSpec
    event_log: EventLog
    snapshots: Snapshots
    candidates: Candidates
    device: str
    train: Callable[[TrainingJob], Awaitable[Outcome]]

    async def fold(self, folder: Folder, events: list[StoredEvent]) -> None:
        left = await asyncio.to_thread(folder.fold, events)
        while left:
            await self._provide_for(folder, left[0])
            left = await asyncio.to_thread(folder.fold, left)

    async def _provide_for(self, folder: Folder, event: StoredEvent) -> None:
        if event.kind is EventKind.CONTEXTS:
            await self._provide_contexts(folder, event)
        elif event.kind is EventKind.ACTIVATION:
            pending = folder.learner.pending
            assert pending is not None  # noqa: S101 - the fold stopped at a pending update
            folder.provide_outcome(await self.train(pending))
        else:
            networks, moments = await stored_networks(
                event, self.snapshots, self.candidates, self.device
            )
            folder.provide_networks(event.offset, networks, moments)

    async def _provide_contexts(self, folder: Folder, event: StoredEvent) -> None:
        found = completed(event)
        assert found is not None  # noqa: S101 - the fold stopped at a completion
        for number in range(found.parts):
            part = await self.event_log.contexts_part(event.experiment_id, found.request_id, number)
            contexts = part_contexts(part, self.spec)
            await asyncio.to_thread(folder.observe_part, event.offset, number, contexts)
