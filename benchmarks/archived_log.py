"""What archiving a log does to replay, selects and the disk.

    python -m benchmarks.archived_log [--events 1000000] [--kept 100000] [--database-url URL] [--json FILE] [--quick]

A log with distinct payloads and hashes, as a service writes them, goes into a new experiment of SQLite in a
temporary folder, or of the Postgres that is named. All but the newest `--kept` events are archived. Selects
with their own request ids go through the whole app on this experiment and on a short one that is never
archived, in turn, before and after; the cost of the long log is its median CPU time divided by the other's.
At the end a byte of the first file is flipped: reading all files must name it, and a replay must stop at it.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import sqlalchemy as sa

from benchmarks.lab import use_one_thread
from benchmarks.log_scale import OPTIONS, Figures, running_app, select_once
from benchmarks.long_log import linear_spec, write_log, write_snapshot
from service.errors import DamagedArchive
from service.learning.replay import replay
from service.records import Experiment, utc_now
from service.storage.archive.archive import Archive
from service.storage.archive.archiving import Archiving, Moved
from service.storage.archive.checking import check, faults
from service.storage.archive.segment_file import read_segment
from service.storage.candidates import Candidates
from service.storage.database import Database
from service.storage.drivers import migrate
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots

SHORT = 1_000
TABLES = ("events", "archived_requests", "log_segments")


async def measure(url: str, folder: Path, events: int, kept: int, selects: int) -> Figures:
    """All figures by name."""
    database = await Database.open(url, replace(OPTIONS, archive_place=str(folder)))
    try:
        await migrate.upgrade(database)
        for name, count in (("short", SHORT), ("long", events)):
            spec = linear_spec(name, episode_length=10**9)
            experiment = await write_log(database, spec, count, is_distinct=True)
            cpu = time.process_time()
            await write_snapshot(database, experiment)
            folding = time.process_time() - cpu
        await _cleaned(database)
        whole = await _disk(database)
        cost = await _select_cost(url, folder, selects, 0)
        started, cpu = time.perf_counter(), time.process_time()
        moved = await Archiving(database).run(experiment, utc_now() + timedelta(days=1), kept)
        took, busy = time.perf_counter() - started, time.process_time() - cpu
        started = time.perf_counter()
        await _cleaned(database)
        cleaning = time.perf_counter() - started
        left = await _disk(database)
        replaying = await _replayed(database, experiment)
        cost_after = await _select_cost(url, folder, selects, events)
        checking = await _flipped(database, experiment, folder)
    finally:
        await database.close()
    share = moved.events / (events + SHORT)
    return {
        "events archived": float(moved.events),
        "replay over both tiers ÷ fold before, CPU": replaying / folding,
        "replay over both tiers, events a second of CPU": events / replaying,
        "archiving, events a second": moved.events / took,
        "archiving, events a second of CPU": moved.events / busy,
        "vacuum afterwards, seconds": cleaning,
        "reading all files, seconds": checking,
        "select: long ÷ short log, before": cost,
        "select: long ÷ short log, after": cost_after,
        "select: after ÷ before": cost_after / cost,
        "bytes of an event before": whole / (events + SHORT),
        "bytes of an archived event": _archived_bytes(moved, whole, left, share),
        "disk of the archived part ÷ before": _archived_bytes(moved, whole, left, share)
        / (whole / (events + SHORT)),
    }


def _archived_bytes(moved: Moved, whole: float, left: float, share: float) -> float:
    """Bytes of files and keys for an archived event: all that is left beyond the rows that stay."""
    return (moved.size_bytes + left - (1 - share) * whole) / moved.events


async def _replayed(database: Database, experiment: Experiment) -> float:
    """The CPU of a replay, which must equal the snapshot that was folded before archiving."""
    cpu = time.process_time()
    stores = EventLog(database), Snapshots(database), Candidates(database)
    report = await replay(await Experiments(database).get(experiment.name), *stores)
    assert report.is_equal, "the replay differs from the stored snapshot"
    return time.process_time() - cpu


async def _flipped(database: Database, experiment: Experiment, folder: Path) -> float:
    """Flip a byte of the first file, which must then be refused; the seconds to read all files."""
    archive = Archive(database)
    segments = await archive.segments(experiment.experiment_id)
    file = folder / segments[0].place
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    started = time.perf_counter()
    found = await faults(partial(check, archive.files), segments)
    took = time.perf_counter() - started
    assert len(found) == 1, found
    assert segments[0].place in found[0]
    read_segment.cache_clear()
    try:
        await _replayed(database, experiment)
    except DamagedArchive:
        return took
    raise AssertionError("a replay took a changed file")


async def _select_cost(url: str, folder: Path, selects: int, first: int) -> float:
    """The CPU of a durable select on the long log, divided by that on the short one."""
    costs: dict[str, list[float]] = {"short": [], "long": []}
    async with running_app(url, archive_dir=str(folder)) as http:
        for number in range(first, first + selects):
            for name, taken in costs.items():
                cpu = time.process_time()
                await select_once(http, name, number)
                taken.append(time.process_time() - cpu)
    short, long = (statistics.median(taken[10:]) for taken in costs.values())
    return long / short


async def _cleaned(database: Database) -> None:
    """Give back the space of deleted rows, as an operator may do at night."""
    engine = database._engine.execution_options(isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        if database.dialect == "sqlite":
            await connection.exec_driver_sql("COMMIT")
            await connection.exec_driver_sql("VACUUM")
            await connection.exec_driver_sql("BEGIN")
        else:
            await connection.exec_driver_sql("VACUUM FULL")


async def _disk(database: Database) -> float:
    """Bytes of the tables of the log with their indexes."""
    if database.dialect == "sqlite":
        marks = ", ".join(f"'{name}'" for name in TABLES)
        query = f"SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT name FROM sqlite_schema WHERE tbl_name IN ({marks}))"  # noqa: S608
    else:
        query = " + ".join(f"pg_total_relation_size('{name}')" for name in TABLES)
        query = f"SELECT {query}"
    found = await database.read(lambda connection: connection.scalar(sa.text(query)), 600.0)
    return float(found or 0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and optionally write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--kept", type=int, default=100_000)
    parser.add_argument("--database-url", help="an empty Postgres database; SQLite otherwise")
    parser.add_argument("--quick", action="store_true", help="3,000 events: shape, no figures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    use_one_thread()
    sizes = (3_000, 300, 15) if options.quick else (options.events, options.kept, 400)
    with tempfile.TemporaryDirectory() as folder:
        url = options.database_url or f"sqlite:///{folder}/daband.db"
        figures = asyncio.run(measure(url, Path(folder) / "archive", *sizes))
    for name, value in figures.items():
        print(f"{name:<44} {value:>14,.2f}")
    if options.json:
        written = {"events": sizes[0], "kept": sizes[1], "figures": figures}
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
