"""Killed while it archives a log, the command loses and doubles nothing, and the next run completes it."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.long_log import linear_spec, write_log, write_snapshot
from service.ops.failpoints import Failpoint
from service.records import Experiment, StoredEvent
from service.storage.archive.archive import Archive
from service.storage.database import Database
from service.storage.events.log import EventLog
from tests.support.processes.daband import Daband
from tests.support.storage import PATIENT, migrated

EVENTS = 1_000
OLD = ("--older-than", "1h")

pytestmark = pytest.mark.slow


async def stored(url: str) -> tuple[Experiment, list[StoredEvent]]:
    """An experiment with a folded log of yesterday, and that log."""
    await migrated(url)
    database = await Database.open(url, PATIENT)
    spec = linear_spec("long", arms=3, size=4, episode_length=10**9)
    experiment = await write_log(database, spec, EVENTS)
    await write_snapshot(database, experiment)
    log = await EventLog(database).read(experiment.experiment_id, 0, EVENTS)
    await database.close()
    return experiment, log


async def read(url: str, folder: Path, experiment: Experiment) -> tuple[list[StoredEvent], int]:
    """The log of both tiers, and how far it is archived."""
    database = await Database.open(url, replace(PATIENT, archive_place=str(folder / "archive")))
    log = await EventLog(database).read(experiment.experiment_id, 0, EVENTS)
    archived = await Archive(database).reach(experiment.experiment_id)
    await database.close()
    return log, archived


def archive(folder: Path, url: str, **settings: str) -> tuple[int, str]:
    given = {"DATABASE_URL": url, "ARCHIVE_DIR": str(folder / "archive"), **settings}
    command = Daband(folder, "log", "archive", "long", *OLD, **given)
    command.start()
    return command.wait(), command.tail()


@pytest.mark.parametrize("point", [Failpoint.BEFORE_MANIFEST, Failpoint.AFTER_MANIFEST])
async def test_a_death_while_archiving_loses_and_doubles_nothing(
    point: Failpoint, folder: Path, postgres_url: str
):
    experiment, before = await stored(postgres_url)
    code, output = archive(folder, postgres_url, FAIL_AT=str(point))
    assert code == -signal.SIGKILL, output
    log, archived = await read(postgres_url, folder, experiment)
    assert log == before
    assert bool(archived) == (point is Failpoint.AFTER_MANIFEST)
    code, output = archive(folder, postgres_url)
    assert code == 0, output
    log, archived = await read(postgres_url, folder, experiment)
    assert log == before
    assert archived == EVENTS - 1
    assert len(list((folder / "archive").rglob("*.parquet"))) == 1
