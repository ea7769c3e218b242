"""Backup and restore: one moment in one file, from either database into either."""

import asyncio
import base64
import gzip
import itertools
import shutil
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.long_log import linear_spec, write_log
from model.config import RECIPE
from service.learning.replay import replay
from service.records import Experiment, uuid7
from service.storage.backup.backup import backup, restore
from service.storage.backup.format import BackupError, Contents, verified
from service.storage.backup.table_rows import StoredTable, Values, stored_tables
from service.storage.database import Database
from service.storage.drivers import migrate
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots
from service.storage.tables import metadata, snapshot_keys
from tests.support.api import CONTEXT, TAUGHT, Api, running_api
from tests.support.storage import PATIENT, PostgresDatabases, decision, sqlite_url
from tests.support.waiting import eventually

KINDS = ("sqlite", "postgres")
# Every encoder passes the gate: whether it is a good one is not the question here.
TRAINING = {"trainer_inside": True, "poll_seconds": 0.05, "lease_seconds": 2.0}


@asynccontextmanager
async def empty_database(
    kind: str, folder: Path, template: Path, servers: PostgresDatabases
) -> AsyncIterator[str]:
    """The URL of a migrated database without a row."""
    if kind == "postgres":
        async with servers.fresh() as url:
            yield url
    else:
        path = folder / f"{uuid7()}.db"
        shutil.copy(template, path)
        yield sqlite_url(path)


@pytest.fixture
async def played(database: Database, experiments: Experiments, event_log: EventLog) -> Experiment:
    """A database with two experiments and a few decisions."""
    first, second = [await experiments.create(name, "{}") for name in ("doses", "offers")]
    for each in (first, second):
        for number in range(40):
            await event_log.append([decision(each, request_id=f"r-{number}")])
    return first


async def counts(database: Database) -> dict[str, int]:
    async with database.snapshot() as connection:
        return {
            table.name: int(
                await connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0
            )
            for table in metadata.sorted_tables
            if table is not snapshot_keys  # a migration writes it
        }


async def play(api: Api, rounds: int, start: int = 0) -> None:
    """Rounds with rewards, and a decision whose reward is still to come."""
    for number in range(start, start + rounds):
        sides = {"source": {"context": CONTEXT}, "target": {"context": CONTEXT}}
        answer = (await api.select(f"r-{number}", **sides)).json()
        await api.reward(answer["source"]["decision_id"], float(number % 2))


async def play_on(api: Api, stopped: asyncio.Event) -> int:
    for start in itertools.count(1000):
        if stopped.is_set():
            return start - 1000
        await play(api, 1, start)
    raise AssertionError("unreachable")


async def backed_up_while_playing(url: str, file: Path) -> tuple[str, Contents]:
    """A decision without a reward, and the backup of the service that goes on learning meanwhile."""
    async with running_api(url, **TRAINING) as api:
        assert (await api.http.post("/experiments", json=TAUGHT)).status_code == 201
        waiting = await api.decide(request_id="waiting")
        await play(api, 40)
        uploaded = np.ones((3, 4), dtype=np.float32).tobytes()
        path = "/target/contexts?experiment=doses"
        kind = {"content-type": "application/octet-stream"}
        await api.http.post(path, content=uploaded, headers=kind)

        async def has_trained() -> bool:
            state = (await api.http.get("/experiments/doses/state")).json()
            return bool(state["encoder_version"] >= 1)

        await eventually(has_trained)
        stopped = asyncio.Event()
        playing = asyncio.create_task(play_on(api, stopped))
        before = await api.last_offset()
        await eventually(lambda: _is_beyond(api, before))
        async with Database.opened(url, PATIENT) as database:
            contents = await backup(database, file)
        stopped.set()
        assert await playing > 0
        return waiting, contents


async def _is_beyond(api: Api, offset: int) -> bool:
    return await api.last_offset() > offset


@pytest.mark.parametrize(("source", "target"), list(itertools.product(KINDS, KINDS)))
async def test_a_running_service_is_restored_on_either_database(
    source: str,
    target: str,
    tmp_path: Path,
    sqlite_template: Path,
    postgres_databases: PostgresDatabases,
):
    place = (tmp_path, sqlite_template, postgres_databases)
    file = tmp_path / "backup.gz"
    async with empty_database(source, *place) as old, empty_database(target, *place) as new:
        waiting, contents = await backed_up_while_playing(old, file)
        assert min(contents.rows[name] for name in ("experiments", "events", "snapshots")) > 0
        async with Database.opened(new, PATIENT) as database:
            assert await restore(database, file) == contents
            assert await counts(database) == contents.rows
            again = tmp_path / "again.gz"
            assert (await backup(database, again)).rows == contents.rows
        async with running_api(new, **TRAINING) as api:
            services = api.services
            experiment = await services.experiments.get("doses")
            assert (experiment.config is not None, experiment.recipe) == (True, RECIPE.version)
            stores = (services.event_log, services.snapshots, services.candidates)
            report = await replay(experiment, *stores)
            assert report.stored_hash is not None
            assert report.is_equal
            assert (await api.reward(waiting)).status_code == 201
            await play(api, 1, start=5000)


async def test_nothing_that_comes_during_a_backup_is_in_it(
    database: Database, played: Experiment, event_log: EventLog
):
    (table,) = [each for each in stored_tables() if each.name == "events"]
    async with database.snapshot() as connection:
        pages = table.pages(connection)
        rows = len(await anext(pages))
        await event_log.append([decision(played) for _ in range(50)])
        rows += sum([len(page) async for page in pages])
    assert rows == 80


async def test_every_table_of_the_database_but_that_of_the_key_is_in_a_backup(
    database: Database, played: Experiment, tmp_path: Path
):
    contents = await backup(database, tmp_path / "backup.gz")
    async with database.snapshot() as connection:
        names = await connection.run_sync(lambda each: sa.inspect(each).get_table_names())
    assert set(contents.rows) == set(names) - {"alembic_version", "snapshot_keys"}
    assert contents.rows["events"] == 80


async def test_a_table_that_is_added_later_is_backed_up_and_restored(tmp_path: Path):
    later = sa.MetaData()
    keys = sa.Table(
        "later_keys",
        later,
        sa.Column("key_id", sa.BigInteger, primary_key=True),
        sa.Column("hashed", sa.LargeBinary, nullable=False),
        sa.Column("is_open", sa.Boolean),
    )
    rows = [{"key_id": 2**40 + i, "hashed": bytes([i]), "is_open": None} for i in range(40)]
    async with (
        Database.opened(sqlite_url(tmp_path / "a.db"), PATIENT) as old,
        Database.opened(sqlite_url(tmp_path / "b.db"), PATIENT) as new,
    ):
        for database in (old, new):
            await database.write(lambda connection: connection.run_sync(later.create_all))
        await old.write(lambda connection: connection.execute(sa.insert(keys), rows))
        await backup(old, tmp_path / "file.gz", stored_tables(later))
        with pytest.raises(BackupError, match="tables do not match"):
            await restore(new, tmp_path / "file.gz")
        await restore(new, tmp_path / "file.gz", stored_tables(later))
        async with new.snapshot() as connection:
            found = (await connection.execute(sa.select(keys))).all()
    assert [each._asdict() for each in found] == rows


async def test_a_damaged_or_shortened_file_is_refused_before_anything_is_written(
    database: Database, played: Experiment, tmp_path: Path
):
    file, damaged = tmp_path / "backup.gz", tmp_path / "damaged.gz"
    whole = (await backup(database, file)).sha256
    content = file.read_bytes()
    refused = 0
    for place in np.linspace(0, len(content) - 1, 60).astype(int).tolist():
        flipped = bytearray(content)
        flipped[place] ^= 0x10
        for changed in (bytes(flipped), content[:place]):
            damaged.write_bytes(changed)
            try:
                # A few bits of the stream's own framing say nothing of what it holds.
                assert verified(damaged).sha256 == whole
            except BackupError:
                refused += 1
    assert refused >= 115
    damaged.write_bytes(content[:-100])
    with pytest.raises(BackupError, match="damaged or truncated"):
        await restore(database, damaged)


async def test_a_backup_is_restored_into_an_empty_database_only(
    database: Database, played: Experiment, tmp_path: Path
):
    file = tmp_path / "backup.gz"
    await backup(database, file)
    before = await counts(database)
    with pytest.raises(BackupError, match="not empty"):
        await restore(database, file)
    assert await counts(database) == before


async def test_a_restore_that_fails_leaves_nothing(
    database: Database, played: Experiment, tmp_path: Path, sqlite_template: Path
):
    file, path = tmp_path / "backup.gz", tmp_path / "target.db"
    await backup(database, file)
    shutil.copy(sqlite_template, path)
    async with Database.opened(sqlite_url(path), PATIENT) as target:
        drop = "CREATE TRIGGER forget AFTER INSERT ON events WHEN new.event_offset = 30 BEGIN"
        drop += " UPDATE events SET arm = 'other' WHERE event_offset = 30; END"
        await target.write(lambda connection: connection.execute(sa.text(drop)))
        with pytest.raises(BackupError, match="the rows of events in the database differ"):
            await restore(target, file)
        assert set((await counts(target)).values()) == {0}


async def test_a_backup_of_another_schema_is_refused(
    database: Database, played: Experiment, tmp_path: Path
):
    file = tmp_path / "backup.gz"
    await backup(database, file)
    async with Database.opened(sqlite_url(tmp_path / "empty.db"), PATIENT) as target:
        with pytest.raises(BackupError, match="the database none: restore with the version"):
            await restore(target, file)


async def test_a_backup_overwrites_nothing_and_leaves_no_half_of_a_file(
    database: Database, played: Experiment, tmp_path: Path
):
    folder = tmp_path / "files"
    folder.mkdir()
    taken = folder / "taken.gz"
    taken.write_text("mine")
    with pytest.raises(BackupError, match="never overwrites"):
        await backup(database, taken)
    broken = sa.MetaData()
    sa.Table("nowhere", broken, sa.Column("id", sa.Integer, primary_key=True))
    with pytest.raises(Exception, match="did not answer in time"):
        await backup(database, folder / "new.gz", stored_tables(broken))
    assert [each.name for each in folder.iterdir()] == ["taken.gz"]


class Replaced(StoredTable):
    """A table that is read while another file replaces the backup."""

    def __init__(self, table: sa.Table, folder: Path) -> None:
        super().__init__(table)
        self._folder = folder

    async def pages(self, connection: AsyncConnection) -> AsyncIterator[list[Values]]:
        async for page in super().pages(connection):
            yield page
        (partial,) = self._folder.iterdir()
        partial.unlink()
        partial.write_text("something else")


async def test_a_backup_that_cannot_be_read_back_is_none(
    database: Database, played: Experiment, tmp_path: Path
):
    folder = tmp_path / "files"
    folder.mkdir()
    tables = [Replaced(table, folder) for table in metadata.sorted_tables[:1]]
    with pytest.raises(BackupError, match="damaged"):
        await backup(database, folder / "new.gz", tables)
    assert list(folder.iterdir()) == []


async def test_memory_does_not_grow_with_the_log(tmp_path: Path, sqlite_template: Path):
    peaks: list[int] = []
    for count in (1_000, 1_000, 5_000):  # the first pays for what is imported and cached once
        path = tmp_path / f"{len(peaks)}.db"
        shutil.copy(sqlite_template, path)
        async with Database.opened(sqlite_url(path), PATIENT) as database:
            await write_log(database, linear_spec("long"), count)
            tracemalloc.start()
            await backup(database, path.with_suffix(".gz"))
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert peaks[2] < 1.5 * peaks[1] + (1 << 20)


async def test_the_key_that_signs_snapshots_is_in_no_backup(database: Database, tmp_path: Path):
    key, file = await Snapshots(database).signing_key(), tmp_path / "file.gz"
    await backup(database, file)
    content = gzip.decompress(file.read_bytes())
    assert b"snapshot_keys" not in content
    assert base64.b64encode(key) not in content
    async with Database.opened(sqlite_url(tmp_path / "new.db"), PATIENT) as restored:
        await migrate.upgrade(restored)
        own = await Snapshots(restored).signing_key()
        await restore(restored, file)
        assert await Snapshots(restored).signing_key() == own != key
