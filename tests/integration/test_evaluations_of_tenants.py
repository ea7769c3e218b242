"""Evaluations are found in their tenant scope alone, on SQLite and on Postgres."""

import pytest

from service.auth.tenants import TenantScope
from service.errors import UnknownEvaluation
from service.records import EvaluationStatus
from service.storage.database import Database
from service.storage.evaluations import Evaluations
from service.storage.experiments import Experiments

ACME = TenantScope("acme")
STRANGERS = (TenantScope(), TenantScope("zenith"), TenantScope("acme", frozenset({"offers"})))


async def test_an_evaluation_is_found_and_stopped_only_in_its_tenant(
    database: Database, experiments: Experiments
):
    evaluations = Evaluations(database)
    experiment = await experiments.create("acme/doses", "{}")
    job, _ = await evaluations.create(experiment.experiment_id, "{}", None)
    for tenant_scope in STRANGERS:
        assert await evaluations.list(10, tenant_scope) == []
        for attempt in (evaluations.get, evaluations.cancel):
            with pytest.raises(UnknownEvaluation):
                await attempt(job.evaluation_id, tenant_scope)
    assert await evaluations.get(job.evaluation_id, ACME) == job
    assert await evaluations.list(10, ACME) == [job]
    stopped = await evaluations.cancel(job.evaluation_id, TenantScope("acme", frozenset({"doses"})))
    assert stopped.status is EvaluationStatus.CANCELLED
