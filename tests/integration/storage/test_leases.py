"""The leases' contract, on SQLite and on Postgres."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from service.errors import UnknownExperiment
from service.records import Experiment, FailureStage, NewSnapshot, Status
from service.storage import tables
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.learning_failures import LearningFailures
from service.storage.leases import Leases
from service.storage.snapshots import Snapshots
from service.storage.tables import DatabaseNow, learning_failures
from tests.support.storage import append_decision

LONG, OVER = 3600.0, -1.0  # seconds


async def set_columns(database: Database, experiment: Experiment, **values: Any) -> None:
    statement = sa.update(tables.experiments).values(values)
    mine = tables.experiments.c.experiment_id == experiment.experiment_id
    await database.write(lambda connection: connection.execute(statement.where(mine)))


async def due(leases: Leases, trainer_id: str = "me", **fields: Any) -> list[str]:
    return [each.name for each in await leases.due(trainer_id, **fields)]


async def test_the_first_trainer_gets_the_lease_and_the_second_none(
    leases: Leases, experiment: Experiment
):
    await leases.renew("a", LONG)
    first = await leases.acquire(experiment.experiment_id, "a")
    assert first is not None
    assert (first.holder, first.epoch) == ("a", 1)
    assert await leases.acquire(experiment.experiment_id, "b") is None


async def test_the_holder_keeps_its_epoch_when_it_asks_again(
    leases: Leases, experiment: Experiment
):
    first = await leases.acquire(experiment.experiment_id, "a")
    assert await leases.acquire(experiment.experiment_id, "a") == first


async def test_the_lease_of_a_trainer_that_fell_silent_goes_to_another_with_a_new_epoch(
    leases: Leases, experiment: Experiment
):
    await leases.renew("a", OVER)
    await leases.renew("b", LONG)
    first = await leases.acquire(experiment.experiment_id, "a")
    second = await leases.acquire(experiment.experiment_id, "b")
    assert first is not None
    assert second is not None
    assert second.epoch == first.epoch + 1
    await leases.renew("a", LONG)
    assert await leases.acquire(experiment.experiment_id, "a") is None


async def test_one_renewal_keeps_all_leases_of_a_trainer(leases: Leases, experiments: Experiments):
    made = [await experiments.create(f"e-{number}", "{}") for number in range(3)]
    await leases.renew("a", OVER)
    for each in made:
        assert await leases.acquire(each.experiment_id, "a") is not None
    await leases.renew("a", LONG)
    assert [await leases.acquire(each.experiment_id, "b") for each in made] == [None] * 3


async def test_a_released_lease_is_free_at_once_and_fences_off_its_holder(
    leases: Leases, experiment: Experiment
):
    for trainer in ("a", "b"):
        await leases.renew(trainer, LONG)
    lease = await leases.acquire(experiment.experiment_id, "a")
    assert lease is not None
    await leases.release(lease, is_unfinished=False)
    second = await leases.acquire(experiment.experiment_id, "b")
    assert second is not None
    assert second.epoch == lease.epoch + 1
    await leases.release(lease, is_unfinished=False)
    assert await leases.acquire(experiment.experiment_id, "a") is None


async def test_a_trainer_that_retires_leaves_all_its_leases(
    leases: Leases, experiments: Experiments
):
    made = [await experiments.create(f"e-{number}", "{}") for number in range(3)]
    await leases.renew("a", LONG)
    for each in made:
        await leases.acquire(each.experiment_id, "a")
    await leases.retire("a")
    assert None not in [await leases.acquire(each.experiment_id, "b") for each in made]


async def test_a_lease_that_an_earlier_build_renews_holds(
    leases: Leases, experiment: Experiment, database: Database
):
    now = await database.read(lambda connection: connection.scalar(sa.select(DatabaseNow())))
    assert now is not None
    times = {"lease_holder": "old", "lease_expires_at": now + timedelta(hours=1)}
    await set_columns(database, experiment, **times, head_offset=1)
    assert await leases.acquire(experiment.experiment_id, "b") is None
    assert await due(leases) == []
    await set_columns(database, experiment, lease_expires_at=now - timedelta(hours=1))
    assert await due(leases) == [experiment.name]
    assert await leases.acquire(experiment.experiment_id, "b") is not None


async def test_of_many_trainers_at_once_one_gets_the_lease(leases: Leases, experiment: Experiment):
    for number in range(10):
        await leases.renew(f"t-{number}", LONG)
    got = await asyncio.gather(
        *(leases.acquire(experiment.experiment_id, f"t-{number}") for number in range(10))
    )
    assert sum(lease is not None for lease in got) == 1


async def test_an_unknown_experiment_has_no_lease(leases: Leases):
    with pytest.raises(UnknownExperiment):
        await leases.acquire("nobody", "a")


async def test_an_experiment_is_due_while_its_log_is_longer_than_its_snapshot(
    leases: Leases, experiment: Experiment, event_log: EventLog, snapshots: Snapshots
):
    assert await due(leases) == []
    await append_decision(event_log, experiment)
    assert await due(leases) == [experiment.name]
    assert await due(leases, names=["another"]) == []
    assert await due(leases, names=[experiment.name]) == [experiment.name]
    lease = await leases.acquire(experiment.experiment_id, "me")
    assert lease is not None
    await snapshots.save(
        experiment.experiment_id,
        epoch=lease.epoch,
        expected_version=0,
        snapshot=NewSnapshot(1, 0, "hash", b"state", is_unfinished=True),
    )
    assert await due(leases) == [experiment.name], "an update is left"
    await leases.release(lease, is_unfinished=False)
    assert await due(leases) == []


async def test_what_another_living_trainer_leads_is_not_due(
    leases: Leases, experiment: Experiment, event_log: EventLog
):
    await append_decision(event_log, experiment)
    await leases.renew("other", LONG)
    await leases.acquire(experiment.experiment_id, "other")
    assert await due(leases) == []
    assert await due(leases, "other") == [experiment.name]
    await leases.renew("other", OVER)
    assert await due(leases) == [experiment.name]


async def test_what_is_deleted_is_not_due(
    leases: Leases, experiment: Experiment, database: Database
):
    await set_columns(database, experiment, head_offset=1, status=Status.DELETED.value)
    assert await due(leases) == []


async def test_failures_wait_for_their_time_and_wait_longer_each_time(
    leases: Leases, experiment: Experiment, database: Database
):
    failures = LearningFailures(database, first_pause_seconds=LONG / 4)
    mine = experiment.experiment_id
    await set_columns(database, experiment, head_offset=1, is_unfinished=True)
    first = await failures.record(mine, FailureStage.FOLDING, "one")
    assert await due(leases) == []
    second = await failures.record(mine, FailureStage.FOLDING, "two")
    third = await failures.record(mine, FailureStage.TRAINING, "three" * 1000)
    assert [each.failures for each in (first, second, third)] == [1, 2, 3]
    assert [each.pause_seconds for each in (first, second, third)] == [LONG / 4, LONG / 2, LONG]
    assert third.since == first.since
    assert len(third.reason) == 1000
    assert await failures.names() == [experiment.name]
    assert await due(leases) == [experiment.name], "training waits, folding goes on"
    await set_columns(database, experiment, head_offset=0)
    assert await due(leases) == []
    found = await failures.get(mine)
    assert found is not None
    assert (found.stage, found.retry_at) == (third.stage, third.retry_at)
    assert 0 < found.pause_seconds <= LONG
    await _end_pause(database)
    assert await due(leases) == [experiment.name]
    await failures.clear(mine)
    assert await failures.get(mine) is None
    assert await failures.names() == []


async def _end_pause(database: Database) -> None:
    statement = sa.update(learning_failures).values(retry_at=DatabaseNow())
    await database.write(lambda connection: connection.execute(statement))
