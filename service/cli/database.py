"""Work on the database itself: migrating, backups, keys, folding a log again."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import typer

from service.app import opened_database
from service.cli.local import run, settings_from
from service.cli.options import duration, fail, progress_bar
from service.errors import ServiceError, UnknownExperiment
from service.learning.replay import ReplayReport, replay
from service.records import Experiment, utc_now
from service.settings import Settings
from service.storage.archive.archive import Archive
from service.storage.archive.archiving import Archiving, Moved
from service.storage.archive.checking import check, copy, faults
from service.storage.archive.files import ArchiveFiles, ArchivingError
from service.storage.archive.manifest import Segment
from service.storage.archive.policy import NEVER, Policy
from service.storage.archive.returning import Returning
from service.storage.backup.backup import backup, restore, rows_of
from service.storage.backup.format import BackupError, Contents, verified
from service.storage.candidates import Candidates
from service.storage.database import Database
from service.storage.drivers import migrate
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.keys import Keys
from service.storage.snapshots import Snapshots
from service.storage.startup import patiently
from service.storage.tables import log_segments

T = TypeVar("T")


def migrated(data_dir: Path | None) -> tuple[str | None, str | None]:
    """The schema before and after."""

    async def upgraded(settings: Settings) -> tuple[str | None, str | None]:
        async with Database.opened(settings.storage_url) as database:
            upgrade = partial(migrate.upgrade, database)
            return await patiently(database, upgrade, settings.startup_seconds)

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


def archived(settings: Settings, name: str | None, policy: Policy) -> list[str]:
    """Move old rounds of one experiment, or of all, into files, by a policy; what went wrong.

    An experiment that cannot be archived now does not hold the others up.
    """

    async def moved(database: Database) -> list[str]:
        stored, archiving = Experiments(database), Archiving(database)
        wrong: list[str] = []
        with progress_bar("archiving") as show:
            for each in [await stored.get(name)] if name else await stored.list():
                rule = policy.rule_of(each.name)
                if rule.older_than == NEVER:
                    continue
                made_before = utc_now() - duration(rule.older_than)
                try:
                    done = await archiving.run(each, made_before, rule.keep, show)
                    typer.echo(_moved(each, done, "moved into"))
                except UnknownExperiment:
                    continue  # deleted meanwhile
                except (ArchivingError, ServiceError) as error:
                    wrong.append(f"{each.name}: {error}")
        return wrong

    return _opened(settings, moved)


def returned(settings: Settings, name: str) -> str:
    """Move all archived rounds of an experiment back into the database; what was moved."""

    async def moved(database: Database) -> str:
        experiment = await Experiments(database).get(name)
        with progress_bar("moving back") as show:
            done = await Returning(database).run(experiment, show)
        return _moved(experiment, done, "moved back from")

    try:
        return _opened(settings, moved)
    except ArchivingError as error:
        fail(str(error))


def _moved(experiment: Experiment, done: Moved, how: str) -> str:
    size = f"{done.size_bytes / 1e6:.1f} MB"
    return f"{experiment.name}: {done.events} events {how} {done.files} files, {size}"


def checked_archive(settings: Settings, name: str | None) -> tuple[Moved, list[str]]:
    """Read every archived file of one experiment, or of all; what is in them, and what is wrong."""

    async def checked(database: Database) -> tuple[Moved, list[str]]:
        archive = Archive(database)
        of = None if name is None else (await Experiments(database).get(name)).experiment_id
        segments = await archive.segments(of)
        if not segments:
            return Moved.of(segments), []
        with progress_bar("reading the files") as show:
            return Moved.of(segments), await faults(partial(check, archive.files), segments, show)

    return _opened(settings, checked)


def backed_up(file: Path, only_verify: bool, data_dir: Path | None, copies: str | None) -> str:
    """Write a backup, or only look at one; what is in it, in words."""
    return _contents(file, only_verify, data_dir, copies, backup, is_back=False)


def restored(file: Path, only_verify: bool, data_dir: Path | None, copies: str | None) -> str:
    """Restore a backup, or only look at it; what is in it, in words."""
    return _contents(file, only_verify, data_dir, copies, restore, is_back=True)


async def _copied(file: Path, archive: Archive, place: str, *, is_back: bool) -> None:
    """Copy the archived files that a backup names to a place, or back from it.

    The manifest of the database may have changed since.
    """
    rows = await asyncio.to_thread(rows_of, file, log_segments)
    segments = [Segment.of_row(row) for row in rows]
    if not segments:
        return
    ours, copies = archive.files, ArchiveFiles(place)
    source, target = (copies, ours) if is_back else (ours, copies)
    with progress_bar("copying the files") as show:
        wrong = await faults(partial(copy, source, target), segments, show)
    if wrong:
        raise ArchivingError("\n".join(wrong))


def with_keys(data_dir: Path | None, work: Callable[[Keys], Awaitable[T]]) -> T:
    """Work on the API keys."""
    return _opened(settings_from(data_dir=data_dir), lambda database: work(Keys(database)))


def _contents(
    file: Path,
    only_verify: bool,
    data_dir: Path | None,
    copies: str | None,
    work: Callable[[Database, Path], Awaitable[Contents]],
    *,
    is_back: bool,
) -> str:
    async def done(database: Database) -> Contents:
        found = await work(database, file)
        if copies is not None:
            await _copied(file, Archive(database), copies, is_back=is_back)
        return found

    try:
        found = verified(file) if only_verify else _opened(settings_from(data_dir=data_dir), done)
    except (BackupError, ArchivingError) as error:
        fail(str(error))
    counts = (f"  {name:<12} {count}" for name, count in found.rows.items())
    lines = [f"schema {found.schema}, of {found.created_at}", *counts]
    if (files := found.rows.get("log_segments")) and copies is None:
        lines.append(f"{files} files of archived rounds are not in it: copy them by --archive")
    return "\n".join((*lines, f"whole, sha256:{found.sha256}"))


def _opened(settings: Settings, work: Callable[[Database], Awaitable[T]]) -> T:
    async def worked() -> T:
        async with opened_database(settings) as database:
            return await work(database)

    return run(worked())
