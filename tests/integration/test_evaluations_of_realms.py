"""Evaluations are found in their realm alone, on SQLite and on Postgres."""

import pytest

from service.auth.tenants import Realm
from service.errors import UnknownEvaluation
from service.records import EvaluationStatus
from service.storage.database import Database
from service.storage.evaluations import Evaluations
from service.storage.experiments import Experiments

ACME = Realm("acme")
STRANGERS = (Realm(), Realm("zenith"), Realm("acme", frozenset({"offers"})))


async def test_an_evaluation_is_found_and_stopped_in_its_realm_alone(
    database: Database, experiments: Experiments
):
    evaluations = Evaluations(database)
    experiment = await experiments.create("acme/doses", "{}")
    job, _ = await evaluations.create(experiment.experiment_id, "{}", None)
    for realm in STRANGERS:
        assert await evaluations.list(10, realm) == []
        for attempt in (evaluations.get, evaluations.cancel):
            with pytest.raises(UnknownEvaluation):
                await attempt(job.evaluation_id, realm)
    assert await evaluations.get(job.evaluation_id, ACME) == job
    assert await evaluations.list(10, ACME) == [job]
    stopped = await evaluations.cancel(job.evaluation_id, Realm("acme", frozenset({"doses"})))
    assert stopped.status is EvaluationStatus.CANCELLED
