"""Archives logs in small files, at once."""

from datetime import timedelta

import sqlalchemy as sa

from service.records import Experiment, utc_now
from service.storage.archive.archiving import Archiving
from service.storage.archive.next_rounds import ArchivingOptions
from service.storage.database import Database
from service.storage.tables import experiments

SMALL = ArchivingOptions(segment_events=10, rows_a_step=4, pause_seconds=0.0)


async def fold(database: Database, experiment: Experiment) -> None:
    """As if a trainer had folded the log up to its end."""
    folded = sa.update(experiments).values(folded_offset=experiments.c.head_offset)
    await database.write(lambda connection: connection.execute(folded))


async def archive(
    database: Database, experiment: Experiment, kept: int = 0, options: ArchivingOptions = SMALL
) -> None:
    """Archive all rounds but the newest `kept` events."""
    await fold(database, experiment)
    await Archiving(database, options).run(experiment, utc_now() + timedelta(days=1), kept)
