"""What happened to an experiment, read from the log: phases, encoders, restores, target rewards."""

import sqlalchemy as sa

from service.records import EventKind, StoredEvent
from service.storage.archive.archive import Archive
from service.storage.database import Database
from service.storage.events.rows import event_columns, fetch_events
from service.storage.tables import LIFECYCLE, TARGET_REWARD, events, log_segments

TIMEOUT_SECONDS = 10.0


class History:
    """The few events that people ask about, found without reading the others."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._archive = Archive(database)

    async def lifecycle(self, experiment_id: str) -> list[StoredEvent]:
        """Phase changes and what became of encoders, in order."""
        query = (
            sa.select(*event_columns(with_context=False))
            .where(events.c.experiment_id == experiment_id, LIFECYCLE)
            .order_by(events.c.event_offset)
        )
        return await fetch_events(self._database, query, TIMEOUT_SECONDS)

    async def has_reward(self, experiment_id: str, after: int) -> bool:
        """Whether there is a reward behind an offset."""
        query = (
            sa.select(events.c.event_offset)
            .where(events.c.experiment_id == experiment_id, events.c.event_offset > after)
            .where(events.c.kind == EventKind.REWARD.value)
            .limit(1)
        )
        found = await self._database.scalar(query, TIMEOUT_SECONDS)
        is_later = log_segments.c.last_reward_offset > after
        return found is not None or bool(await self._archive.segments(experiment_id, is_later))

    async def target_rewards(self, experiment_id: str) -> list[float]:
        """The rewards of target decisions, in order."""
        query = (
            sa.select(events.c.event_offset, events.c.reward)
            .where(events.c.experiment_id == experiment_id, TARGET_REWARD)
            .order_by(events.c.event_offset)
        )
        rows = await self._database.rows(query, TIMEOUT_SECONDS)
        found = {offset: float(reward) for offset, reward in rows}
        both = await self._archive.target_rewards(experiment_id) | found
        return [both[offset] for offset in sorted(both)]
