"""The snapshots' contract, on SQLite and on Postgres."""

import asyncio
import os
from dataclasses import replace

import pytest
import sqlalchemy as sa

from service.errors import StaleEpoch, UnknownExperiment, UnknownSnapshot, VersionConflict
from service.records import Experiment, NewSnapshot, SnapshotRecord, StoredSnapshot
from service.storage.candidates import Candidates
from service.storage.database import Database
from service.storage.experiments import Experiments
from service.storage.leases import Leases
from service.storage.snapshots import LARGE_BYTES, PART_BYTES, Snapshots, write_parts
from service.storage.tables import blob_parts
from tests.support.storage import outcome


def snapshot(blob: bytes = b"state", encoder_version: int = 1, **fields: bool) -> NewSnapshot:
    return NewSnapshot(7, encoder_version, "sha256:abc", blob, note={"loss": 0.5}, **fields)


async def save(
    snapshots: Snapshots, experiment: Experiment, expected_version: int, new: NewSnapshot
) -> SnapshotRecord:
    return await snapshots.save(
        experiment.experiment_id, epoch=0, expected_version=expected_version, snapshot=new
    )


async def save_many(snapshots: Snapshots, experiment: Experiment, count: int) -> None:
    for version in range(count):
        await save(snapshots, experiment, version, snapshot(b"state %d" % (version + 1)))


async def test_a_saved_snapshot_comes_back_whole(
    snapshots: Snapshots, experiments: Experiments, experiment: Experiment
):
    blob = bytes(range(256)) * 1000
    record = await save(snapshots, experiment, 0, snapshot(blob))
    latest = await snapshots.latest(experiment.experiment_id)
    assert latest is not None
    assert (latest.blob, latest.record) == (blob, record)
    assert latest.is_intact
    assert (record.version, record.offset, record.size_bytes) == (1, 7, len(blob))
    assert record.note == {"loss": 0.5}
    assert (await experiments.get(experiment.name)).next_version == 2


async def test_there_is_no_latest_before_the_first(snapshots: Snapshots, experiment: Experiment):
    assert await snapshots.latest(experiment.experiment_id) is None
    assert await snapshots.list(experiment.experiment_id) == []


async def test_a_save_on_another_version_than_expected_is_refused(
    snapshots: Snapshots, experiment: Experiment
):
    await save(snapshots, experiment, 0, snapshot(b"one"))
    for expected_version in (0, 2):
        with pytest.raises(VersionConflict):
            await save(snapshots, experiment, expected_version, snapshot(b"two"))


async def test_saving_the_same_again_returns_what_is_stored(
    snapshots: Snapshots, experiment: Experiment
):
    first = await save(snapshots, experiment, 0, snapshot(b"one"))
    assert await save(snapshots, experiment, 0, snapshot(b"one")) == first
    assert len(await snapshots.list(experiment.experiment_id)) == 1


async def test_of_saves_that_race_one_wins(snapshots: Snapshots, experiment: Experiment):
    results = await asyncio.gather(
        *(outcome(save(snapshots, experiment, 0, snapshot(b"%d" % n))) for n in range(8))
    )
    assert sum(isinstance(each, SnapshotRecord) for each in results) == 1
    assert sum(isinstance(each, VersionConflict) for each in results) == 7


async def test_a_trainer_that_was_stopped_and_woke_up_is_refused(
    snapshots: Snapshots, leases: Leases, experiment: Experiment
):
    old = await leases.acquire(experiment.experiment_id, "old")
    new = await leases.acquire(experiment.experiment_id, "new")
    assert old is not None
    assert new is not None
    with pytest.raises(StaleEpoch):
        await snapshots.save(
            experiment.experiment_id, epoch=old.epoch, expected_version=0, snapshot=snapshot()
        )
    saved = await snapshots.save(
        experiment.experiment_id, epoch=new.epoch, expected_version=0, snapshot=snapshot()
    )
    assert (saved.version, saved.epoch) == (1, new.epoch)


async def test_a_version_is_found_and_a_missing_one_refused(
    snapshots: Snapshots, experiment: Experiment
):
    await save_many(snapshots, experiment, 3)
    assert (await snapshots.get(experiment.experiment_id, 2)).blob == b"state 2"
    with pytest.raises(UnknownSnapshot):
        await snapshots.get(experiment.experiment_id, 4)


async def test_a_record_is_found_without_its_bytes(snapshots: Snapshots, experiment: Experiment):
    saved = await save(snapshots, experiment, 0, snapshot(b"one"))
    assert await snapshots.find(experiment.experiment_id, 1) == saved
    assert await snapshots.find(experiment.experiment_id, 2) is None
    assert await snapshots.find(experiment.experiment_id, 2**63 - 1) is None
    assert await snapshots.find("another", 1) is None


async def test_the_signing_key_is_random_and_the_same_for_all(database: Database):
    key = await Snapshots(database).signing_key()
    assert key == await Snapshots(database).signing_key()
    assert len(key) == 32
    assert len(set(key)) > 8


async def test_pruning_keeps_the_pinned_and_the_newest(
    snapshots: Snapshots, experiment: Experiment
):
    await save_many(snapshots, experiment, 8)
    await snapshots.pin(experiment.experiment_id, 4)
    assert await snapshots.prune(experiment.experiment_id, keep=2) == 4
    kept = await snapshots.list(experiment.experiment_id)
    assert [(record.version, record.is_pinned) for record in kept] == [
        (8, False),
        (7, False),
        (4, True),
        (1, True),
    ]


async def test_the_first_snapshot_of_each_encoder_is_pinned(
    snapshots: Snapshots, experiment: Experiment
):
    for version, encoder_version in enumerate([1, 1, 2, 2]):
        await save(snapshots, experiment, version, snapshot(encoder_version=encoder_version))
    listed = await snapshots.list(experiment.experiment_id)
    assert [record.is_pinned for record in listed] == [False, True, False, True]


async def test_kept_snapshots_are_tried_from_the_newest_until_one_is_usable(
    snapshots: Snapshots, experiment: Experiment
):
    await save_many(snapshots, experiment, 5)
    await snapshots.prune(experiment.experiment_id, keep=2)
    tried: list[int] = []

    async def use(stored: StoredSnapshot) -> str | None:
        tried.append(stored.record.version)
        return "usable" if stored.record.version == wanted else None

    for wanted, expected in ((4, [5, 4]), (1, [5, 4, 1]), (3, [5, 4, 1])):
        found = await snapshots.newest_usable(experiment.experiment_id, use)
        assert (found, tried) == (None if wanted == 3 else "usable", expected)
        tried.clear()


async def test_versions_are_not_used_again_after_pruning(
    snapshots: Snapshots, experiment: Experiment
):
    await save_many(snapshots, experiment, 3)
    await snapshots.prune(experiment.experiment_id, keep=1)
    with pytest.raises(VersionConflict):
        await save(snapshots, experiment, 1, snapshot(b"other"))
    assert (await save(snapshots, experiment, 3, snapshot())).version == 4


async def test_changed_bytes_are_noticed(snapshots: Snapshots, experiment: Experiment):
    await save(snapshots, experiment, 0, snapshot(b"state"))
    stored = await snapshots.get(experiment.experiment_id, 1)
    assert not replace(stored, blob=b"State").is_intact


async def test_what_is_not_there_is_refused(snapshots: Snapshots, experiment: Experiment):
    with pytest.raises(UnknownSnapshot):
        await snapshots.pin(experiment.experiment_id, 1)
    with pytest.raises(UnknownExperiment):
        await snapshots.save("nobody", epoch=0, expected_version=0, snapshot=snapshot())


async def parts(database: Database) -> int:
    query = sa.select(sa.func.count()).select_from(blob_parts)
    return await database.read(lambda connection: connection.scalar(query)) or 0


async def test_a_large_snapshot_is_written_in_parts_and_comes_back_whole(
    snapshots: Snapshots, experiment: Experiment, database: Database
):
    blob = os.urandom(LARGE_BYTES + 1)
    record = await save(snapshots, experiment, 0, snapshot(blob))
    assert await parts(database) == LARGE_BYTES // PART_BYTES + 1
    latest = await snapshots.latest(experiment.experiment_id)
    assert latest is not None
    assert (latest.record, latest.is_intact) == (record, True)
    assert latest.blob == blob
    assert await save(snapshots, experiment, 0, snapshot(blob)) == record, "as after a time-out"
    assert await parts(database) == LARGE_BYTES // PART_BYTES + 1


async def test_parts_that_no_row_came_after_mean_nothing_and_go(
    snapshots: Snapshots, experiment: Experiment, database: Database
):
    mine = experiment.experiment_id
    await write_parts(database, mine, bytes(LARGE_BYTES + 1), 60.0)
    assert await snapshots.latest(mine) is None
    kept = snapshot(os.urandom(LARGE_BYTES + 1), encoder_version=1)
    await save(snapshots, experiment, 0, kept)
    await save(snapshots, experiment, 1, snapshot(os.urandom(LARGE_BYTES + 1)))
    await save(snapshots, experiment, 2, snapshot(b"small"))
    await snapshots.prune(mine, keep=1)
    assert await parts(database) == LARGE_BYTES // PART_BYTES + 1, "those of the pinned one"
    assert (await snapshots.get(mine, 1)).is_intact


async def test_a_part_that_is_missing_or_changed_is_noticed(
    snapshots: Snapshots, experiment: Experiment, database: Database
):
    await save(snapshots, experiment, 0, snapshot(os.urandom(LARGE_BYTES + 1)))
    changed = sa.update(blob_parts).where(blob_parts.c.number == 1).values(content=b"changed")
    await database.write(lambda connection: connection.execute(changed))
    assert not (await snapshots.get(experiment.experiment_id, 1)).is_intact
    await database.write(lambda connection: connection.execute(sa.delete(blob_parts)))
    assert not (await snapshots.get(experiment.experiment_id, 1)).is_intact


async def test_a_large_candidate_comes_back_whole(database: Database, experiment: Experiment):
    candidates = Candidates(database)
    blob = os.urandom(LARGE_BYTES + 1)
    mine = experiment.experiment_id
    await candidates.save(mine, 1, blob, {}, epoch=0, keep=1)
    assert (await candidates.get(mine, 1)).blob == blob
    await candidates.save(mine, 2, b"small", {}, epoch=0, keep=1)
    assert await parts(database) == 0
