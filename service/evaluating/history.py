"""Writes past rounds to an experiment's log: whole or not at all, and never twice."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from service.codec.decisions import DecisionPayload
from service.columns.schema import TableError
from service.errors import ExperimentArchived, ExperimentPaused
from service.evaluating.experiment_log import IMPORTED
from service.evaluating.importing import only_chosen, with_reward
from service.experiment_spec import ExperimentSpec
from service.formats.history import HistoryShape, HistorySpool, PastRound, rounds_of
from service.records import (
    Actor,
    Domain,
    EventKind,
    Experiment,
    NewEvent,
    Status,
)
from service.storage.events.history_parts import HistoryPart, HistoryParts
from service.storage.events.log import EventLog

KEY_DIGITS = 32  # of the digest in a row's key

# Called after each append with the rows written so far and in all; None if that is not known.
Progress = Callable[[int, int | None], None]


def _ignore(done: int, total: int | None) -> None:
    """Show nothing."""


@dataclass(frozen=True, slots=True)
class ImportedHistory:
    """What the log holds of a history now; `is_new` if any of it was written by this call."""

    sha256: str
    rows: int
    rewards: int
    propensities: int
    is_new: bool

    def answer(self, experiment: str) -> dict[str, object]:
        """As callers see it."""
        return {
            "experiment": experiment,
            "sha256": self.sha256,
            "rows": self.rows,
            "rewards": self.rewards,
            "propensities": self.propensities,
            "status": "created" if self.is_new else "already_recorded",
        }


def history_shape(spec: ExperimentSpec) -> HistoryShape:
    """What a history must look like for an experiment; `TableError` if it takes none."""
    if spec.is_per_arm or (len(spec.context_shape) != 1 and spec.image is None):
        raise TableError(
            "A history needs contexts that all arms share: a table, a vector or an image."
        )
    width = spec.context_shape[0]
    return HistoryShape(spec.arms, spec.table, width, spec.reward_range, spec.image)


class HistoryImport:
    """Appends a checked history to an experiment's log.

    All parts are stored first. Then one event in the log accepts the history, and every row becomes a
    decision with its reward. An import that is interrupted before that event leaves nothing in the log. One
    that is interrupted later is finished by `UnfinishedHistories`, or when the same rounds are sent again.
    Keys are made of the history's digest and the row's number, so nothing is written twice.
    """

    def __init__(
        self,
        event_log: EventLog,
        parts: HistoryParts,
        experiment: Experiment,
        actor: Actor | None = None,
    ) -> None:
        self._event_log = event_log
        self._parts = parts
        self._experiment = experiment
        self._actor = actor or Actor()

    async def run(
        self, spool: HistorySpool, digest: str, progress: Progress = _ignore
    ) -> ImportedHistory:
        """Write what is not in the log yet."""
        found = (digest, spool.rows, spool.rewarded, spool.with_propensity)
        if await self._event_log.find_decision(self._key(digest, spool.rows)) is not None:
            return ImportedHistory(*found, is_new=False)
        self._check_status()
        for part in spool.parts():
            await self._parts.store(self._experiment.experiment_id, digest, HistoryPart(*part))
        await self._event_log.append([self._acceptance(spool, digest)])
        await self.finish(digest, progress, spool.rows)
        return ImportedHistory(*found, is_new=True)

    async def done(self, digest: str, rows: int) -> int:
        """How many rows of a history are in the log: they are written in their order."""
        low, high = 0, rows
        while low < high:
            middle = (low + high + 1) // 2
            if await self._event_log.find_decision(self._key(digest, middle)) is not None:
                low = middle
            else:
                high = middle - 1
        return low

    async def is_accepted(self, digest: str) -> bool:
        """Whether the history with this digest was accepted."""
        key = self._history_key(digest)
        return await self._event_log.find(EventKind.HISTORY, key) is not None

    async def finish(
        self, digest: str, progress: Progress = _ignore, total: int | None = None
    ) -> None:
        """Write the parts of an accepted history that are left."""
        experiment_id = self._experiment.experiment_id
        while (part := await self._parts.first(experiment_id, digest)) is not None:
            rounds = [*rounds_of(part.content)]
            events = [*self._events(rounds, digest, part.first_row)]
            await self._event_log.append(events, is_answered=True)
            await self._parts.delete(experiment_id, digest, part.first_row)
            progress(part.first_row + len(rounds), total)

    def _check_status(self) -> None:
        """Refuse a history that the experiment does not take."""
        if self._experiment.status is Status.PAUSED:
            raise ExperimentPaused
        if self._experiment.status is not Status.ACTIVE:
            raise ExperimentArchived

    def _key(self, digest: str, number: int) -> str:
        return f"{self._experiment.experiment_id}:{digest[:KEY_DIGITS]}:{number}"

    def _history_key(self, digest: str) -> str:
        return f"{self._experiment.experiment_id}:history:{digest}"

    def _acceptance(self, spool: HistorySpool, digest: str) -> NewEvent:
        facts = {
            "sha256": digest,
            "rows": spool.rows,
            "rewards": spool.rewarded,
            "propensities": spool.with_propensity,
            **self._actor.known(),
        }
        payload = json.dumps(facts).encode()
        key = self._history_key(digest)
        return NewEvent(self._experiment.experiment_id, EventKind.HISTORY, key, payload=payload)

    def _events(self, rounds: list[PastRound], digest: str, first_row: int) -> Iterator[NewEvent]:
        arms = ExperimentSpec.of(self._experiment).arms
        nothing = (0.0,) * len(arms)
        for number, past in enumerate(rounds, first_row + 1):
            payload = DecisionPayload(
                arms,
                only_chosen(arms, past.arm, past.propensity),
                nothing,
                nothing,
                IMPORTED,
                past.time,
                past.row_id,
            )
            decision = NewEvent(
                self._experiment.experiment_id,
                EventKind.DECISION,
                self._key(digest, number),
                payload=msgspec.json.encode(payload),
                context=past.context,
                domain=Domain.SOURCE,
                arm=past.arm,
                policy_version=0,
            )
            yield from with_reward(decision, past.reward)
