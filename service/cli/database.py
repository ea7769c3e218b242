"""Work on the database itself: migrating, backups, keys, folding a log again."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from service.app import opened_database
from service.cli.local import run, settings_from
from service.cli.options import fail, progress_bar
from service.learning.replay import ReplayReport, replay
from service.records import utc_now
from service.settings import Settings
from service.storage.archive.archive import Archive
from service.storage.archive.archiving import Archiving, Moved
from service.storage.archive.manifest import ArchivingError
from service.storage.backup.backup import backup, restore
from service.storage.backup.format import BackupError, Contents, verified
from service.storage.candidates import Candidates
from service.storage.database import Database
from service.storage.drivers import migrate
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.keys import Keys
from service.storage.snapshots import Snapshots

T = TypeVar("T")


def migrated(data_dir: Path | None) -> tuple[str | None, str | None]:
    """The schema before and after."""

    async def upgraded(settings: Settings) -> tuple[str | None, str | None]:
        async with Database.opened(settings.storage_url) as database:
            return await migrate.upgrade(database)

    return run(upgraded(settings_from(data_dir=data_dir)))


def replayed(settings: Settings, name: str) -> ReplayReport:
    """What folding an experiment's log from zero gives, beside what is stored."""

    async def folded(database: Database) -> ReplayReport:
        experiment = await Experiments(database).get(name)
        log = EventLog(database)
        stores = (log, Snapshots(database), Candidates(database))
        with progress_bar("folding the log") as show:
            return await replay(experiment, *stores, settings.device, show)

    return _opened(settings, folded)


def archived(
    settings: Settings, name: str | None, older_than: timedelta, kept: int
) -> list[tuple[str, Moved]]:
    """Move old rounds of one experiment, or of all, into files; what was moved, by name."""

    async def moved(database: Database) -> list[tuple[str, Moved]]:
        stored, archiving = Experiments(database), Archiving(database)
        made_before = utc_now() - older_than
        found: list[tuple[str, Moved]] = []
        with progress_bar("archiving") as show:
            for each in [await stored.get(name)] if name else await stored.list():
                done = await archiving.run(each, made_before, kept, show)
                found.append((each.name, done))
        return found

    try:
        return _opened(settings, moved)
    except ArchivingError as error:
        fail(str(error))


def checked_archive(settings: Settings, name: str) -> Moved:
    """Read every archived file of an experiment; what is in them."""

    async def checked(database: Database) -> Moved:
        experiment, archive = await Experiments(database).get(name), Archive(database)
        segments = await archive.segments(experiment.experiment_id)
        with progress_bar("reading the files") as show:
            for number, segment in enumerate(segments):
                await archive.check(segment)
                show(number, len(segments))
        return Moved.of(segments)

    return _opened(settings, checked)


def backed_up(file: Path, only_verify: bool, data_dir: Path | None) -> str:
    """Write a backup, or only look at one; what is in it, in words."""
    return _contents(file, only_verify, data_dir, lambda database: backup(database, file))


def restored(file: Path, only_verify: bool, data_dir: Path | None) -> str:
    """Restore a backup, or only look at it; what is in it, in words."""
    return _contents(file, only_verify, data_dir, lambda database: restore(database, file))


def with_keys(data_dir: Path | None, work: Callable[[Keys], Awaitable[T]]) -> T:
    """Work on the API keys."""
    return _opened(settings_from(data_dir=data_dir), lambda database: work(Keys(database)))


def _contents(
    file: Path,
    only_verify: bool,
    data_dir: Path | None,
    work: Callable[[Database], Awaitable[Contents]],
) -> str:
    try:
        found = verified(file) if only_verify else _opened(settings_from(data_dir=data_dir), work)
    except BackupError as error:
        fail(str(error))
    counts = (f"  {name:<12} {count}" for name, count in found.rows.items())
    lines = [f"schema {found.schema}, of {found.created_at}", *counts]
    if files := found.rows.get("log_segments"):
        lines.append(f"{files} files of archived rounds are not in it: copy their folder too")
    return "\n".join((*lines, f"whole, sha256:{found.sha256}"))


def _opened(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    async def worked() -> T:
        async with opened_database(settings) as database:
            return await work(database)

    return run(worked())
