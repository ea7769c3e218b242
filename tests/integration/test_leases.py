"""The leases' contract, on SQLite and on Postgres."""

import asyncio

import pytest

from service.errors import UnknownExperiment
from service.records import Experiment
from service.storage.leases import Leases
from tests.storage_tools import eventually


async def test_the_first_trainer_gets_the_lease_and_the_second_none(
    leases: Leases, experiment: Experiment
):
    first = await leases.acquire(experiment.experiment_id, "a", ttl_seconds=60)
    assert first is not None
    assert (first.holder, first.epoch) == ("a", 1)
    assert await leases.acquire(experiment.experiment_id, "b", ttl_seconds=60) is None


async def test_the_holder_keeps_its_epoch_when_it_asks_again(
    leases: Leases, experiment: Experiment
):
    first = await leases.acquire(experiment.experiment_id, "a", ttl_seconds=60)
    second = await leases.acquire(experiment.experiment_id, "a", ttl_seconds=90)
    assert first is not None
    assert second is not None
    assert second.epoch == first.epoch
    assert second.expires_at > first.expires_at


async def test_an_expired_lease_goes_to_another_with_a_new_epoch(
    leases: Leases, experiment: Experiment
):
    first = await leases.acquire(experiment.experiment_id, "a", ttl_seconds=0)
    second = await leases.acquire(experiment.experiment_id, "b", ttl_seconds=60)
    assert first is not None
    assert second is not None
    assert second.epoch == first.epoch + 1
    assert await leases.renew(first, ttl_seconds=60) is None
    assert await leases.acquire(experiment.experiment_id, "a", ttl_seconds=60) is None


async def test_a_lease_expires_by_the_databases_clock(leases: Leases, experiment: Experiment):
    await leases.acquire(experiment.experiment_id, "a", ttl_seconds=0.3)
    assert await leases.acquire(experiment.experiment_id, "b", ttl_seconds=60) is None

    async def is_taken_over() -> bool:
        return await leases.acquire(experiment.experiment_id, "b", ttl_seconds=60) is not None

    await eventually(is_taken_over)


async def test_renewing_moves_the_end_and_keeps_the_epoch(leases: Leases, experiment: Experiment):
    lease = await leases.acquire(experiment.experiment_id, "a", ttl_seconds=1)
    assert lease is not None
    renewed = await leases.renew(lease, ttl_seconds=60)
    assert renewed is not None
    assert renewed.epoch == lease.epoch
    assert renewed.expires_at > lease.expires_at


async def test_an_expired_lease_that_nobody_took_can_be_renewed(
    leases: Leases, experiment: Experiment
):
    lease = await leases.acquire(experiment.experiment_id, "a", ttl_seconds=0)
    assert lease is not None
    assert await leases.renew(lease, ttl_seconds=60) is not None
    assert await leases.acquire(experiment.experiment_id, "b", ttl_seconds=60) is None


async def test_a_released_lease_is_free_at_once_and_fences_off_its_holder(
    leases: Leases, experiment: Experiment
):
    lease = await leases.acquire(experiment.experiment_id, "a", ttl_seconds=60)
    assert lease is not None
    await leases.release(lease)
    second = await leases.acquire(experiment.experiment_id, "b", ttl_seconds=60)
    assert second is not None
    assert second.epoch == lease.epoch + 1
    await leases.release(lease)
    assert await leases.renew(second, ttl_seconds=60) is not None


async def test_of_many_trainers_at_once_one_gets_the_lease(leases: Leases, experiment: Experiment):
    got = await asyncio.gather(
        *(leases.acquire(experiment.experiment_id, f"t-{n}", ttl_seconds=60) for n in range(10))
    )
    assert sum(lease is not None for lease in got) == 1


async def test_an_unknown_experiment_has_no_lease(leases: Leases):
    with pytest.raises(UnknownExperiment):
        await leases.acquire("nobody", "a", ttl_seconds=60)
