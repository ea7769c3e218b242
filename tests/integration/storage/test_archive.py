"""Archived rounds, on SQLite and on Postgres: read as one log with the rest, and never lost."""

import asyncio
import dataclasses
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from fsspec.implementations.memory import MemoryFileSystem
from msgspec import structs

from service.bus.bus import InProcessBus
from service.errors import (
    DamagedArchive,
    DecisionArchived,
    RequestConflict,
    RewardConflict,
    UnknownDecision,
)
from service.records import (
    Appended,
    Domain,
    EventKind,
    Experiment,
    NewEvent,
    StoredEvent,
    phase_event,
    utc_now,
    uuid7,
)
from service.storage.archive import archiving
from service.storage.archive.archive import Archive
from service.storage.archive.archiving import Archiving
from service.storage.archive.files import ArchiveFiles, ArchivingError
from service.storage.archive.manifest import Segment
from service.storage.archive.returning import Returning
from service.storage.archive.segment_file import read_segment
from service.storage.backup.backup import backup, restore
from service.storage.database import Database
from service.storage.erasing import Erasing
from service.storage.events import postgres, sqlite
from service.storage.events.browsing import Browsing, LogFilter
from service.storage.events.history import History
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.tables import archived_requests, events, log_segments
from tests.support.archives import SMALL, archive, fold
from tests.support.storage import (
    PATIENT,
    decision,
    find_request,
    migrated,
    outcome,
    reward,
    sqlite_url,
)

ROUNDS = 12


@pytest.fixture
async def database(database_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    place = str(tmp_path / "archive")
    read_segment.cache_clear()
    opened = await Database.open(database_url, dataclasses.replace(PATIENT, archive_place=place))
    yield opened
    await opened.close()


async def play(log: EventLog, experiment: Experiment) -> list[list[NewEvent]]:
    """Rounds of two sides in named requests; each third has no reward, some rewards come late."""
    rounds = []
    for number in range(ROUNDS):
        sides = [
            structs.replace(
                decision(experiment, domain=domain, request_id=f"r-{number}"),
                arm=f"arm-{number % 2}",
                context=bytes([number]) * 5,
            )
            for domain in (Domain.SOURCE, Domain.TARGET)
        ]
        await log.append(sides)
        rounds.append(sides)
        if number == 1:
            await log.append([phase_event(experiment.experiment_id)])
        if number % 3 == 2:
            for late in (number - 2, number):
                await log.append([reward(experiment, rounds[late][0].event_key, late / 10)])
            await log.append([reward(experiment, rounds[number - 2][1].event_key, 0.5)])
    return rounds


async def rows(database: Database) -> list[tuple[int, str]]:
    query = sa.select(events.c.event_offset, events.c.kind).order_by(events.c.event_offset)
    found = await database.read(lambda connection: connection.execute(query))
    return [(offset, kind) for offset, kind in found]


async def counts(database: Database, *tables: sa.Table) -> list[int | None]:
    """How many rows there are in each."""
    queries = [sa.select(sa.func.count()).select_from(each) for each in tables]
    async with database.snapshot() as connection:
        return [await connection.scalar(each) for each in queries]


async def whole(log: EventLog, experiment: Experiment, size: int = 7) -> list[StoredEvent]:
    """The log, page by page."""
    found: list[StoredEvent] = []
    while page := await log.read(experiment.experiment_id, len(found), size):
        found += page
    return found


@pytest.fixture
async def played(event_log: EventLog, experiment: Experiment) -> list[list[NewEvent]]:
    return await play(event_log, experiment)


async def test_both_tiers_are_read_as_the_log_was_before(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    before = await whole(event_log, experiment)
    await archive(database, experiment, kept=9)
    left = await rows(database)
    assert [kind for _, kind in left[:1]] == ["phase"]
    assert len(left) < len(before) / 2
    for size in (1, 7, 1000):
        assert await whole(event_log, experiment, size) == before
    assert await event_log.read(experiment.experiment_id, 3, 8, up_to=9) == before[3:9]
    offsets = [each.offset for each in before]
    found = await event_log.events_at(experiment.experiment_id, [*offsets, 10**6])
    assert found == {each.offset: structs.replace(each, decision=None) for each in before}


async def test_every_search_finds_what_it_found_before(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    history, experiment_id = History(database), experiment.experiment_id
    keys = [side.event_key for sides in played for side in sides]

    async def found() -> list[object]:
        return [
            await event_log.find_decisions(keys),
            dict(sorted((await event_log.find_rewards(experiment_id, keys)).items())),
            [await find_request(event_log, experiment_id, f"r-{n}") for n in range(ROUNDS + 1)],
            await history.target_rewards(experiment_id),
            [await history.has_reward(experiment_id, after) for after in (0, 20, 10**6)],
            await history.lifecycle(experiment_id),
        ]

    before = await found()
    await archive(database, experiment, kept=9)
    assert await found() == before


async def test_pages_and_counts_are_those_of_before(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    browsing = Browsing(database)
    filters = [
        LogFilter(),
        LogFilter(domain=Domain.TARGET),
        LogFilter(arm="arm-1", is_rewarded=True),
        LogFilter(is_rewarded=False),
    ]

    async def found() -> list[object]:
        pages = [
            await browsing.page(experiment.experiment_id, before, limit, wanted)
            for wanted in filters
            for before, limit in ((1000, 100), (30, 5), (9, 3))
        ]
        blocks = [(0, 12), (12, 30), (30, 40)]
        counts = await browsing.counts(experiment.experiment_id, Domain.SOURCE, blocks)
        return [*pages, sorted(counts)]

    before = await found()
    await archive(database, experiment, kept=9)
    assert await found() == before


async def test_a_repeated_request_gets_its_archived_decisions(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    first = await find_request(event_log, experiment.experiment_id, "r-0")
    await archive(database, experiment)
    again = [structs.replace(each, event_key=uuid7()) for each in played[0]]
    repeated = await event_log.append([structs.replace(each, has_new_key=True) for each in again])
    assert [each.created for each in repeated] == [False, False]
    assert [each.event.event_key for each in repeated] == [each.event_key for each in first]
    other = [structs.replace(each, request_hash="other", has_new_key=True) for each in again]
    assert isinstance(await outcome(event_log.append(other)), RequestConflict)
    new = decision(experiment, request_id="r-new")
    assert [each.created for each in await event_log.append([new])] == [True]


async def test_rewards_of_archived_decisions_repeat_but_no_new_one_comes(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    await archive(database, experiment)
    rewarded, unrewarded = played[0][0].event_key, played[1][0].event_key
    before = await event_log.last_offset(experiment.experiment_id)
    (repeated,) = await event_log.append([reward(experiment, rewarded, 0.0)])
    assert not repeated.created
    refusals = [
        await outcome(event_log.append([reward(experiment, key, 0.7)]))
        for key in (rewarded, unrewarded, uuid7(), played[0][0].event_key[:-1] + "x")
    ]
    assert [type(each) for each in refusals] == [
        RewardConflict,
        DecisionArchived,
        UnknownDecision,
        UnknownDecision,
    ]
    assert await event_log.last_offset(experiment.experiment_id) == before


async def test_a_decision_that_is_written_again_under_its_own_id_is_found(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    await archive(database, experiment)
    (again,) = await event_log.append([played[2][0]])
    assert (again.created, again.event.offset) == (False, 6)


async def test_a_reward_in_the_table_of_an_archived_decision_brings_it(
    database: Database, event_log: EventLog, experiment: Experiment
):
    new = [decision(experiment, context=bytes([n])) for n in range(4)]
    await event_log.append(new)
    await event_log.append([reward(experiment, new[0].event_key)])
    await archive(database, experiment, kept=2)
    assert [offset for offset, _ in await rows(database)] == [4, 5]
    *_, last = await whole(event_log, experiment)
    assert last.decision is not None
    assert last.decision.context == bytes([0])
    (conflict,) = [await outcome(event_log.append([reward(experiment, new[0].event_key, 9.0)]))]
    assert isinstance(conflict, RewardConflict)


async def test_only_what_is_old_folded_and_not_kept_leaves_the_table(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    head = await event_log.last_offset(experiment.experiment_id)
    archiving, later = Archiving(database, SMALL), utc_now() + timedelta(days=1)
    assert (await archiving.run(experiment, later)).events == 0  # nothing is folded
    await fold(database, experiment)
    assert (await archiving.run(experiment, utc_now() - timedelta(days=1))).events == 0
    assert (await archiving.run(experiment, later, kept=head)).events == 0
    assert len(await rows(database)) == head
    assert (await archiving.run(experiment, later)).events > 0


async def test_the_sides_of_a_round_stay_together(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    for kept in range(12, 4, -1):
        await archive(database, experiment, kept)
        archived = await Archive(database).reach(experiment.experiment_id)
        for number in range(ROUNDS):
            found = await find_request(event_log, experiment.experiment_id, f"r-{number}")
            assert len(found) == 2
            assert len({each.offset <= archived for each in found}) == 1


async def test_a_flipped_byte_is_refused_with_the_name_of_the_file(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    played: list[list[NewEvent]],
    tmp_path: Path,
):
    await archive(database, experiment)
    first, *_ = await Archive(database).segments(experiment.experiment_id)
    file = tmp_path / "archive" / first.place
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    read_segment.cache_clear()
    with pytest.raises(DamagedArchive, match=file.name):
        await event_log.read(experiment.experiment_id, 0, 3)
    file.unlink()
    with pytest.raises(DamagedArchive, match="cannot be read"):
        await event_log.read(experiment.experiment_id, 0, 3)
    new = decision(experiment, request_id="r-new")
    assert (await event_log.append([new]))[0].created  # what needs no file goes on


class StoppedError(Exception):
    """A run ends here."""


@pytest.mark.parametrize(
    ("owner", "step"),
    [(Archiving, "_enter"), (archiving, "enter"), (Archiving, "_delete_rows")],
)
async def test_an_interrupted_run_loses_nothing_and_the_next_one_completes_it(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    played: list[list[NewEvent]],
    owner: object,
    step: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    before = await whole(event_log, experiment)

    async def interrupted(*arguments: object) -> None:
        raise StoppedError

    with monkeypatch.context() as patched:
        patched.setattr(owner, step, interrupted)
        with pytest.raises(StoppedError):
            await archive(database, experiment)
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == 1
    assert await whole(event_log, experiment) == before
    refused = await outcome(event_log.append([reward(experiment, played[1][0].event_key)]))
    assert isinstance(refused, DecisionArchived) == (step == "_delete_rows")
    await archive(database, experiment)
    again = await whole(event_log, experiment)
    assert again[: len(before)] == before
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == len(
        await Archive(database).segments(experiment.experiment_id)
    )
    assert all(kind == "phase" or offset >= len(before) for offset, kind in await rows(database))


@pytest.fixture
async def half_deleted(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    played: list[list[NewEvent]],
    monkeypatch: pytest.MonkeyPatch,
) -> list[NewEvent]:
    """A round whose file is in the manifest; of its rows only the target's is left."""

    async def one_row(self: Archiving, segment: Segment) -> None:
        first = sa.delete(events).where(events.c.event_offset == segment.first_offset)
        await database.write(lambda connection: connection.execute(first))
        raise StoppedError

    monkeypatch.setattr(Archiving, "_delete_rows", one_row)
    with pytest.raises(StoppedError):
        await archive(database, experiment)
    assert (2, "decision") in await rows(database)
    assert (1, "decision") not in await rows(database)
    return played[0]


async def test_a_request_is_answered_as_before_while_its_rows_are_deleted(
    event_log: EventLog, experiment: Experiment, half_deleted: list[NewEvent]
):
    again = [
        structs.replace(each, event_key=uuid7(), has_new_key=True, context=bytes(5))
        for each in half_deleted
    ]
    repeated = await event_log.append(again)
    assert [each.created for each in repeated] == [False, False]
    assert [each.event.offset for each in repeated] == [1, 2]
    ids = [each.event_key for each in half_deleted]
    assert [each.event.event_key for each in repeated] == ids
    found = await find_request(event_log, experiment.experiment_id, "r-0")
    assert [each.event_key for each in found] == ids
    other = [structs.replace(each, request_hash="other") for each in again]
    assert isinstance(await outcome(event_log.append(other)), RequestConflict)


async def test_a_backup_that_was_made_while_rows_are_deleted_restores_the_log(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    half_deleted: list[NewEvent],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.undo()
    before = await whole(event_log, experiment)
    await backup(database, tmp_path / "backup")
    shutil.copytree(tmp_path / "archive", tmp_path / "copies")
    url = sqlite_url(tmp_path / "other.db")
    await migrated(url)
    options = dataclasses.replace(PATIENT, archive_place=str(tmp_path / "copies"))
    async with Database.opened(url, options) as other:
        await restore(other, tmp_path / "backup")
        assert await whole(EventLog(other), experiment) == before
        await archive(other, experiment)
        assert await whole(EventLog(other), experiment) == before
        assert [kind for _, kind in await rows(other)] == ["phase", "reward"]


async def test_accepted_rounds_that_are_written_again_after_they_were_archived_are_found(
    database: Database, event_log: EventLog, experiment: Experiment
):
    made = [decision(experiment) for _ in range(20)]
    rounds = [each for new in made for each in (new, reward(experiment, new.event_key))]
    await event_log.append(rounds, is_answered=True)
    await archive(database, experiment, kept=15)
    again = await event_log.append(rounds, is_answered=True)
    assert {each.created for each in again} == {False}
    assert [each.event.offset for each in again] == list(range(1, 41))


async def test_while_nothing_is_archived_an_append_looks_nothing_more_up(
    database: Database, event_log: EventLog, experiment: Experiment, monkeypatch: pytest.MonkeyPatch
):
    async def looked_up(*_: object) -> None:
        raise StoppedError

    monkeypatch.setattr(EventLog, "_looked_up", looked_up)
    for backend in (postgres, sqlite):
        monkeypatch.setattr(backend, "ARCHIVED_REQUESTS", "no statement")
    played = await play(event_log, experiment)
    again = await event_log.append(played[0])
    assert [each.created for each in again] == [False, False]
    unknown = event_log.append([reward(experiment, uuid7())])
    assert isinstance(await outcome(unknown), UnknownDecision)
    await archive(database, experiment)
    assert isinstance(await outcome(event_log.append(played[0])), Exception)


async def test_a_reward_that_comes_while_its_decision_is_written_to_a_file_is_in_it(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    played: list[list[NewEvent]],
    monkeypatch: pytest.MonkeyPatch,
):
    enter, late = Archiving._enter, [reward(experiment, played[1][0].event_key, 0.3)]

    async def reward_first(self: Archiving, *arguments: object) -> None:
        while late:
            await event_log.append([late.pop()])
        await enter(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Archiving, "_enter", reward_first)
    await archive(database, experiment, kept=3)
    found = await event_log.find_rewards(experiment.experiment_id, [played[1][0].event_key])
    assert [each.reward for each in found.values()] == [0.3]
    (pair,) = (
        each
        for each in (
            await Browsing(database).page(experiment.experiment_id, 100, 100, LogFilter())
        ).pairs
        if each.decision.event_key == played[1][0].event_key
    )
    assert pair.reward == 0.3


async def test_selects_and_rewards_go_on_while_a_log_is_archived(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    written: list[Appended] = []
    is_over = asyncio.Event()

    async def playing() -> None:
        while not is_over.is_set():
            new = decision(experiment, request_id=f"during-{len(written)}")
            written.extend(await event_log.append([new]))
            await event_log.append([reward(experiment, new.event_key)])

    task = asyncio.create_task(playing())
    for _ in range(3):
        await archive(database, experiment)
    is_over.set()
    await task
    log = await whole(event_log, experiment, 50)
    assert [each.offset for each in log] == list(range(1, len(log) + 1))
    rewarded = {each.event_key for each in log if each.kind is EventKind.REWARD}
    assert {each.event.event_key for each in written} <= rewarded


async def test_two_processes_do_not_archive_one_log_at_once(
    database: Database, experiment: Experiment, played: list[list[NewEvent]]
):
    await fold(database, experiment)
    one, other = Archiving(database, SMALL), Archiving(database, SMALL)
    later = utc_now() + timedelta(days=1)
    results = await asyncio.gather(
        one.run(experiment, later), other.run(experiment, later), return_exceptions=True
    )
    assert [type(each) for each in results].count(ArchivingError) == 1


async def test_a_deleted_experiment_leaves_no_file_and_no_key(
    database: Database,
    experiments: Experiments,
    experiment: Experiment,
    played: list[list[NewEvent]],
    tmp_path: Path,
):
    await archive(database, experiment)
    assert list((tmp_path / "archive").rglob("*.parquet"))
    await experiments.delete("doses")
    erasing = Erasing(database, InProcessBus().forget)
    while await erasing.step():
        pass
    assert list((tmp_path / "archive").iterdir()) == []
    assert await counts(database, archived_requests, log_segments, events) == [0, 0, 0]


@pytest.fixture
async def two_deleted(
    database: Database, event_log: EventLog, experiments: Experiments, experiment: Experiment
) -> list[Experiment]:
    """Two experiments with archived rounds, both deleted; the first one is erased first."""
    both = [experiment, await experiments.create("other", "{}")]
    for each in both:
        await event_log.append([decision(each) for _ in range(ROUNDS)])
        await archive(database, each)
        await experiments.delete(each.name)
    return both


async def erased(database: Database) -> int:
    """Erase as much as can be; how many files of the manifest are left."""
    erasing = Erasing(database, InProcessBus().forget)
    while await erasing.step():
        pass
    (left,) = await counts(database, log_segments)
    return left or 0


async def test_nothing_is_erased_while_the_folder_of_the_files_is_not_mounted(
    database: Database, two_deleted: list[Experiment], tmp_path: Path
):
    files = len(list((tmp_path / "archive").rglob("*.parquet")))
    (tmp_path / "archive").rename(tmp_path / "not-mounted")
    (tmp_path / "archive").mkdir()  # the mount point
    assert await erased(database) == files
    (tmp_path / "archive").rmdir()
    (tmp_path / "not-mounted").rename(tmp_path / "archive")
    assert await erased(database) == 0
    assert list((tmp_path / "archive").iterdir()) == []


async def test_erasing_waits_for_a_store_that_fails_in_its_own_way(
    database: Database, two_deleted: list[Experiment], monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: object) -> None:
        raise RuntimeError("no store")

    (files,) = await counts(database, log_segments)
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveFiles, "empty", fails)
        assert await erased(database) == files
    assert await erased(database) == 0


async def test_an_experiment_that_cannot_be_erased_holds_up_no_other(
    database: Database, two_deleted: list[Experiment], tmp_path: Path
):
    stuck, other = (tmp_path / "archive" / each.experiment_id for each in two_deleted)
    stuck.rename(tmp_path / "lost")
    left = len(list((tmp_path / "lost").glob("*.parquet")))
    assert await erased(database) == left
    assert not other.exists()


async def test_files_of_rounds_that_are_not_archived_yet_are_left_alone(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    played: list[list[NewEvent]],
    tmp_path: Path,
):
    folder = tmp_path / "archive" / experiment.experiment_id
    folder.mkdir(parents=True)
    names = ("000000000001-000000000004-0.parquet", "000000009999-000000010000-0.parquet")
    for name in names:
        (folder / name).write_bytes(b"another run's")
    await archive(database, experiment)
    assert [(folder / name).exists() for name in names] == [False, True]


async def test_nothing_is_archived_into_a_folder_without_the_earlier_files(
    database: Database, event_log: EventLog, experiment: Experiment, tmp_path: Path
):
    await event_log.append([decision(experiment) for _ in range(ROUNDS)])
    await archive(database, experiment, kept=6)
    before = await rows(database)
    (tmp_path / "archive").rename(tmp_path / "not-mounted")
    with pytest.raises(DamagedArchive):
        await archive(database, experiment)
    assert await rows(database) == before
    assert not list((tmp_path / "archive").rglob("*.parquet"))


async def test_a_deleted_experiment_takes_the_file_of_a_killed_run_along(
    database: Database,
    experiments: Experiments,
    experiment: Experiment,
    played: list[list[NewEvent]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    async def interrupted(*_: object) -> None:
        raise StoppedError

    monkeypatch.setattr(Archiving, "_enter", interrupted)
    with pytest.raises(StoppedError):
        await archive(database, experiment)
    assert list((tmp_path / "archive").rglob("*.parquet"))
    await experiments.delete("doses")
    while await Erasing(database, InProcessBus().forget).step():
        pass
    assert not list((tmp_path / "archive").iterdir())


async def test_a_store_behind_a_url_is_read_and_emptied_like_a_folder(
    database_url: str, event_log: EventLog, experiments: Experiments, experiment: Experiment
):
    await play(event_log, experiment)
    before = await whole(event_log, experiment)
    options = dataclasses.replace(PATIENT, archive_place="memory://daband")
    database = await Database.open(database_url, options)
    log, store = EventLog(database), MemoryFileSystem()
    await archive(database, experiment, kept=9)
    segments = await Archive(database).segments(experiment.experiment_id)
    assert len(store.find("/daband")) == len(segments) > 1
    assert await whole(log, experiment) == before
    await archive(database, experiment)
    read_segment.cache_clear()
    store.pipe_file(f"/daband/{segments[0].place}", b"other bytes")
    with pytest.raises(DamagedArchive, match="has changed"):
        await log.read(experiment.experiment_id, 0, 3)
    store.rm_file(f"/daband/{segments[0].place}")
    with pytest.raises(DamagedArchive, match="cannot be read"):
        await log.read(experiment.experiment_id, 0, 3)
    await experiments.delete("doses")
    while await Erasing(database, InProcessBus().forget).step():
        pass
    assert not store.find("/daband")
    await database.close()


async def test_a_store_of_an_unknown_kind_is_refused(database_url: str, experiment: Experiment):
    options = dataclasses.replace(PATIENT, archive_place="nowhere://bucket")
    database = await Database.open(database_url, options)
    with pytest.raises(DamagedArchive, match="DABAND_ARCHIVE_DIR cannot be used"):
        await archive(database, experiment)
    await database.close()


async def move_back(database: Database, experiment: Experiment) -> None:
    await Returning(database, SMALL, partial(asyncio.sleep, 0)).run(experiment)


async def test_rounds_that_are_moved_back_are_as_if_they_were_never_archived(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    played: list[list[NewEvent]],
    tmp_path: Path,
):
    before, table = await whole(event_log, experiment), await rows(database)
    await archive(database, experiment)
    await move_back(database, experiment)
    assert await rows(database) == table
    assert not list((tmp_path / "archive").rglob("*.parquet"))
    assert await counts(database, archived_requests, log_segments) == [0, 0]
    assert await whole(event_log, experiment) == before
    again = await event_log.append([structs.replace(each, event_key=uuid7()) for each in played[0]])
    assert [each.created for each in again] == [False, False]
    (late,) = await event_log.append([reward(experiment, played[1][0].event_key, 0.7)])
    assert late.created
    await archive(database, experiment)
    await move_back(database, experiment)
    assert (await whole(event_log, experiment))[: len(before)] == before


async def test_the_way_back_waits_for_readers_before_each_tier_is_taken_away(
    database: Database, experiment: Experiment, played: list[list[NewEvent]], tmp_path: Path
):
    table = await rows(database)
    await archive(database, experiment)
    files = sorted((tmp_path / "archive").rglob("*.parquet"))
    manifest: list[int | None] = []

    async def nobody_reads() -> None:
        assert await rows(database) == table
        assert sorted((tmp_path / "archive").rglob("*.parquet")) == files
        manifest.extend(await counts(database, log_segments))

    await Returning(database, SMALL, nobody_reads).run(experiment)
    assert manifest == [len(files), 0]


@pytest.mark.parametrize("step", ["_insert", "_write", "_forget_requests"])
async def test_a_way_back_that_was_interrupted_loses_nothing_and_is_completed(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    played: list[list[NewEvent]],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
):
    before, table = await whole(event_log, experiment), await rows(database)
    await archive(database, experiment)
    work, left = getattr(Returning, step), [None, None]

    async def interrupted(*arguments: object) -> None:
        if not left:
            raise StoppedError
        left.pop()
        await work(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Returning, step, interrupted)
        with pytest.raises(StoppedError):
            await move_back(database, experiment)
    read_segment.cache_clear()
    assert await whole(event_log, experiment) == before
    await archive(database, experiment)  # the rows of files are deleted again
    assert await whole(event_log, experiment) == before
    await move_back(database, experiment)
    assert await rows(database) == table


async def test_a_file_whose_rows_are_not_all_back_stays_in_the_manifest(
    database: Database,
    event_log: EventLog,
    experiment: Experiment,
    played: list[list[NewEvent]],
    monkeypatch: pytest.MonkeyPatch,
):
    before = await whole(event_log, experiment)
    await archive(database, experiment)

    async def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(Returning, "_insert", nothing)
    with pytest.raises(ArchivingError, match="rows were deleted"):
        await move_back(database, experiment)
    assert await whole(event_log, experiment) == before


async def test_selects_and_rewards_go_on_while_a_log_is_moved_back(
    database: Database, event_log: EventLog, experiment: Experiment, played: list[list[NewEvent]]
):
    before = await whole(event_log, experiment)
    await archive(database, experiment)
    is_over, has_read = asyncio.Event(), asyncio.Event()

    async def reading() -> None:
        while not is_over.is_set():
            read_segment.cache_clear()
            again = [structs.replace(each, event_key=uuid7()) for each in played[3]]
            assert [each.created for each in await event_log.append(again)] == [False, False]
            assert (await whole(event_log, experiment))[: len(before)] == before
            await event_log.append([decision(experiment)])
            has_read.set()

    async def wait_for_readers() -> None:
        for _ in range(2):  # the first one may have begun earlier
            has_read.clear()
            await has_read.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(reading())
        await Returning(database, SMALL, wait_for_readers).run(experiment)
        is_over.set()
