"""Whether the event log holds everything that was acknowledged, each once."""

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from loadtest.traffic import REWARD, SELECT
from service.records import EventKind, StoredEvent
from service.storage.database import Database, DatabaseOptions
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments

PAGE = 5000
PATIENT = DatabaseOptions(timeout_seconds=60, lock_timeout_seconds=30)
KINDS = {EventKind.DECISION: SELECT, EventKind.REWARD: REWARD}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Acknowledged events and the log, side by side."""

    acknowledged: int
    logged: int
    lost: int  # acknowledged, and not in the log
    repeated: int  # in the log more than once


def compared(
    acknowledged: Mapping[str, set[bytes]], logged: Mapping[str, Counter[bytes]]
) -> Comparison:
    """What was acknowledged against what was logged, by kind and id."""
    lost = sum(len(ids - logged.get(kind, Counter()).keys()) for kind, ids in acknowledged.items())
    return Comparison(
        acknowledged=sum(len(ids) for ids in acknowledged.values()),
        logged=sum(counts.total() for counts in logged.values()),
        lost=lost,
        repeated=sum(n > 1 for counts in logged.values() for n in counts.values()),
    )


async def logged_ids(database_url: str, experiment: str) -> dict[str, Counter[bytes]]:
    """How often each decision's and reward's id is in the log, by kind."""
    found: dict[str, Counter[bytes]] = {kind: Counter() for kind in KINDS.values()}
    async with Database.opened(database_url, PATIENT) as database:
        known = await Experiments(database).get(experiment)
        async for event in _events(EventLog(database), known.experiment_id):
            if event.kind in KINDS:
                found[KINDS[event.kind]][bytes.fromhex(event.event_key.replace("-", ""))] += 1
    return found


async def _events(log: EventLog, experiment_id: str) -> AsyncIterator[StoredEvent]:
    offset = 0
    while page := await log.read(experiment_id, offset, PAGE):
        for event in page:
            yield event
        offset = page[-1].offset
