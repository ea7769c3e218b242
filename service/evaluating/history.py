"""Writes past rounds to an experiment's log: whole or not at all, and never twice."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import msgspec

from service.codec.decisions import PastPayload
from service.columns.schema import TableError
from service.errors import ExperimentArchived, ExperimentPaused
from service.evaluating.experiment_log import IMPORTED
from service.evaluating.importing import only_chosen, with_reward
from service.experiment_spec import ExperimentSpec
from service.formats.history import HistoryShape, HistorySpool, PastRound
from service.records import (
    Actor,
    Domain,
    EventKind,
    Experiment,
    NewEvent,
    Status,
    acted_by,
)
from service.storage.events.log import EventLog

ROWS = 256  # in one append
KEY_DIGITS = 32  # of the digest in a row's key

# Called after each append with the rows written so far and in all.
Progress = Callable[[int, int], None]


def _ignore(done: int, total: int) -> None:
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
    if spec.is_per_arm or len(spec.context_shape) != 1:
        raise TableError("A history needs contexts that all arms share: a table or a vector.")
    return HistoryShape(spec.arms, spec.table, spec.context_shape[0], spec.reward_range)


class HistoryImport:
    """Appends a checked history to an experiment's log.

    One event announces it, then every row is a decision with its reward. Keys are made of the history's
    digest and the row's number: the same file sent again continues an interrupted import, or changes nothing.
    """

    def __init__(
        self, event_log: EventLog, experiment: Experiment, actor: Actor | None = None
    ) -> None:
        self._event_log = event_log
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
        await self._event_log.append([self._announcement(spool, digest)])
        rounds, done = iter(spool), 0
        while some := list(islice(rounds, ROWS)):
            await self._event_log.append([*self._events(some, digest, done)])
            done += len(some)
            progress(done, spool.rows)
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

    def _check_status(self) -> None:
        """Refuse before anything is written what would be refused at the first row."""
        if self._experiment.status is Status.PAUSED:
            raise ExperimentPaused
        if self._experiment.status is not Status.ACTIVE:
            raise ExperimentArchived

    def _key(self, digest: str, number: int) -> str:
        return f"{self._experiment.experiment_id}:{digest[:KEY_DIGITS]}:{number}"

    def _announcement(self, spool: HistorySpool, digest: str) -> NewEvent:
        facts = {
            "sha256": digest,
            "rows": spool.rows,
            "rewards": spool.rewarded,
            "propensities": spool.with_propensity,
            **self._author(),
        }
        experiment_id = self._experiment.experiment_id
        key = f"{experiment_id}:history:{digest}"
        return NewEvent(experiment_id, EventKind.HISTORY, key, payload=json.dumps(facts).encode())

    def _author(self) -> dict[str, str]:
        """Who imports it and why, as far as that is known."""
        said = {"by": self._actor.by, "reason": self._actor.reason}
        return {name: text for name, text in said.items() if text} | acted_by(self._actor.key_id)

    def _events(self, rounds: list[PastRound], digest: str, first_row: int) -> Iterator[NewEvent]:
        arms = ExperimentSpec.of(self._experiment).arms
        nothing = (0.0,) * len(arms)
        for number, past in enumerate(rounds, first_row + 1):
            key = self._key(digest, number)
            payload = PastPayload(
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
                key,
                payload=msgspec.json.encode(payload),
                context=past.context,
                domain=Domain.SOURCE,
                arm=past.arm,
                policy_version=0,
            )
            yield from with_reward(decision, past.reward)
