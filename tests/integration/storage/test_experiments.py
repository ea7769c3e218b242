"""The experiments' contract, on SQLite and on Postgres."""

import asyncio
from datetime import timedelta

import pytest

from service.auth.tenants import TenantScope
from service.errors import (
    ExperimentExists,
    StaleEpoch,
    TooManyExperiments,
    UnknownExperiment,
)
from service.limits import Quotas
from service.records import Experiment, Phase, Status, utc_now
from service.storage.database import Database
from service.storage.experiments import Experiments
from service.storage.leases import Leases
from tests.support.storage import outcome

SKEW = timedelta(minutes=1)  # between the clocks of a database server and of the test


async def test_a_new_experiment_is_active_empty_and_zero_shot(experiments: Experiments):
    before = utc_now()
    made = await experiments.create("doses", '{"arms": ["low"]}')
    assert (made.name, made.spec) == ("doses", '{"arms": ["low"]}')
    assert (made.phase, made.status) == (Phase.ZERO_SHOT, Status.ACTIVE)
    assert (made.head_offset, made.next_version, made.epoch) == (0, 1, 0)
    assert before - SKEW <= made.created_at <= utc_now() + SKEW


async def test_the_configuration_in_force_is_stored_and_changed_by_its_trainer_alone(
    experiments: Experiments, leases: Leases
):
    made = await experiments.create("doses", "{}", config='{"alpha": 1.0}', recipe=3)
    assert (made.config, made.recipe) == ('{"alpha": 1.0}', 3)
    lease = await leases.acquire(made.experiment_id, "me")
    assert lease is not None
    changed = await experiments.set_config(made.experiment_id, "{}", 4, epoch=lease.epoch)
    assert (changed.config, changed.recipe, changed.spec) == ("{}", 4, "{}")
    with pytest.raises(StaleEpoch):
        await experiments.set_config(made.experiment_id, "[]", 5, epoch=lease.epoch - 1)
    assert await experiments.get("doses") == changed


async def test_an_experiment_is_found_by_name_and_by_id(
    experiments: Experiments, experiment: Experiment
):
    assert await experiments.get("doses") == experiment
    assert await experiments.get_by_id(experiment.experiment_id) == experiment


async def test_an_unknown_experiment_is_refused(experiments: Experiments):
    for attempt in (
        experiments.get("nobody"),
        experiments.get_by_id("nobody"),
        experiments.set_status("nobody", Status.PAUSED),
    ):
        with pytest.raises(UnknownExperiment):
            await attempt


@pytest.mark.parametrize("quotas", [Quotas(per_tenant=3), Quotas(in_all=3)])
async def test_the_last_place_is_taken_once_however_many_want_it(
    database: Database, quotas: Quotas
):
    experiments = Experiments(database, quotas)
    for name in ("acme/a", "acme/b"):
        await experiments.create(name, "{}")
    for attempt in range(3):
        wanted = [f"acme/{attempt}-{number}" for number in range(10)]
        results = await asyncio.gather(*(outcome(experiments.create(n, "{}")) for n in wanted))
        (made,) = [each for each in results if isinstance(each, Experiment)]
        assert sum(isinstance(each, TooManyExperiments) for each in results) == len(wanted) - 1
        assert len(await experiments.list()) == 3
        await experiments.delete(made.name)  # which makes the place free


async def test_a_name_is_taken_once_however_many_try_at_once(experiments: Experiments):
    results = await asyncio.gather(*(outcome(experiments.create("a", "{}")) for _ in range(10)))
    assert sum(isinstance(each, Experiment) for each in results) == 1
    assert sum(isinstance(each, ExperimentExists) for each in results) == 9


async def test_experiments_are_listed_the_oldest_first(experiments: Experiments):
    made = [await experiments.create(name, "{}") for name in ("b", "a", "c")]
    assert await experiments.list() == made


async def test_an_experiment_can_start_with_target_rewards_open(experiments: Experiments):
    made = await experiments.create("open", "{}", Phase.CONTINUED)
    assert (await experiments.get("open")).phase is made.phase is Phase.CONTINUED


async def test_pausing_twice_and_resuming_is_fine(experiments: Experiments, experiment: Experiment):
    for status in (Status.PAUSED, Status.PAUSED, Status.ACTIVE):
        assert (await experiments.set_status(experiment.name, status)).status is status


@pytest.mark.parametrize(
    ("tenant_scope", "found"),
    [
        (TenantScope(), ["doses", "a_b"]),
        (TenantScope("acme"), ["acme/doses", "acme/offers"]),
        (TenantScope("a_me"), ["a_me/doses"]),
        (TenantScope("ACME"), []),
        (TenantScope("acm"), []),
        (TenantScope("acme", frozenset({"offers", "nothing"})), ["acme/offers"]),
        (TenantScope("", frozenset({"doses", "offers"})), ["doses"]),
        (TenantScope("acme", frozenset()), []),
    ],
)
async def test_a_tenant_scope_holds_only_its_experiments(
    experiments: Experiments, tenant_scope: TenantScope, found: list[str]
):
    for name in ("doses", "acme/doses", "a_me/doses", "acme/offers", "a_b"):
        await experiments.create(name, "{}")
    assert [each.name for each in await experiments.list(tenant_scope)] == found
    assert all(tenant_scope.holds(name) for name in found)
