"""Files of archived rounds that somebody cut, swapped, put back or pointed elsewhere: refused, and nothing is lost."""

import asyncio
import dataclasses
import shutil
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from service.errors import DamagedArchive
from service.records import Experiment, NewEvent, StoredEvent
from service.storage.archive.archive import Archive
from service.storage.archive.checking import check, faults
from service.storage.archive.manifest import Segment
from service.storage.archive.returning import Returning
from service.storage.archive.segment_file import read_segment
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.tables import log_segments
from tests.support.archives import SMALL, archive
from tests.support.storage import PATIENT, decision, reward

PAGE = 7


@pytest.fixture
async def database(database_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    place = str(tmp_path / "archive")
    read_segment.cache_clear()
    async with Database.opened(
        database_url, dataclasses.replace(PATIENT, archive_place=place)
    ) as opened:
        yield opened


@pytest.fixture
async def before(event_log: EventLog, experiment: Experiment) -> list[StoredEvent]:
    """A log of twenty rounds."""
    for _ in range(20):
        made = decision(experiment)
        await event_log.append([made])
        await event_log.append([reward(experiment, made.event_key)])
    return await whole(event_log, experiment)


async def whole(log: EventLog, experiment: Experiment) -> list[StoredEvent]:
    """The log page by page, from the files and not from memory."""
    read_segment.cache_clear()
    found: list[StoredEvent] = []
    while page := await log.read(experiment.experiment_id, len(found), PAGE):
        found += page
    return found


def cut(file: Path, other: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path, other: Path) -> None:
    file.write_bytes(b"")


def swap(file: Path, other: Path) -> None:
    """Another good file of the same log."""
    shutil.copy(other, file)


def point(file: Path, other: Path) -> None:
    """A link to a good file."""
    file.unlink()
    file.symlink_to(other)


def point_nowhere(file: Path, other: Path) -> None:
    file.unlink()
    file.symlink_to(file)


@pytest.mark.parametrize("attack", [cut, empty, swap, point, point_nowhere, "missing"])
async def test_a_file_that_is_not_the_one_that_was_written_is_refused_by_name(
    attack: Callable[[Path, Path], None] | str,
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    before: list[StoredEvent],
    tmp_path: Path,
):
    await archive(database, experiment, kept=5)
    store = Archive(database)
    segments = await store.segments(experiment.experiment_id)
    file, other = (tmp_path / "archive" / each.place for each in segments[:2])
    kept = shutil.copy(file, tmp_path / "kept")
    file.unlink() if isinstance(attack, str) else attack(file, other)
    read_segment.cache_clear()
    with pytest.raises(DamagedArchive, match=file.name):
        await event_log.read(experiment.experiment_id, 0, PAGE)
    (found,) = await faults(partial(check, store.files), segments)
    assert file.name in found
    with pytest.raises(DamagedArchive, match=file.name):  # before anything is taken back
        await Returning(database, SMALL, partial(asyncio.sleep, 0)).run(experiment)
    assert await store.segments(experiment.experiment_id) == segments
    (appended,) = await event_log.append([decision(experiment)])  # what needs no file goes on
    assert appended.created
    file.unlink(missing_ok=True)
    shutil.copy(kept, file)
    assert (await whole(event_log, experiment))[: len(before)] == before


async def test_a_row_of_the_manifest_that_names_another_place_reads_nothing_from_there(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    before: list[StoredEvent],
    tmp_path: Path,
):
    await archive(database, experiment)
    first, *_ = await Archive(database).segments(experiment.experiment_id)
    # The name of a file has the first 16 characters of the hash: these lead out of the folder.
    forged = dataclasses.replace(first, sha256="/../../../secret")
    assert (tmp_path / "archive" / forged.place).name == "secret.parquet"
    shutil.copy(tmp_path / "archive" / first.place, tmp_path / "secret.parquet")
    changed = sa.update(log_segments).where(log_segments.c.last_offset == first.last_offset)
    await database.write(lambda c: c.execute(changed.values(sha256=forged.sha256)))
    read_segment.cache_clear()
    with pytest.raises(DamagedArchive, match=r"cannot be read|has changed"):
        await event_log.read(experiment.experiment_id, 0, PAGE)


async def test_an_old_file_that_is_put_back_is_no_part_of_the_log(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    before: list[StoredEvent],
    tmp_path: Path,
):
    await archive(database, experiment, kept=5)
    folder = tmp_path / "archive"
    old = shutil.copytree(folder, tmp_path / "old")
    await Returning(database, SMALL, partial(asyncio.sleep, 0)).run(experiment)
    shutil.copytree(old, folder, dirs_exist_ok=True)
    assert await whole(event_log, experiment) == before
    late: NewEvent = decision(experiment)
    await event_log.append([late])
    await archive(database, experiment)
    assert (await whole(event_log, experiment))[: len(before)] == before
    segments: list[Segment] = await Archive(database).segments(experiment.experiment_id)
    files = {str(each.relative_to(folder)) for each in folder.rglob("*.parquet")}
    assert files == {each.place for each in segments}, "those that nothing names are removed"
