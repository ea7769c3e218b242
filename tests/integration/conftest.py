"""Storage and the app on real databases; the same tests run on SQLite and on Postgres."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.records import Experiment
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.leases import Leases
from service.storage.snapshots import Snapshots
from tests.support.api import DOSES, OFFERS, Api, running_api
from tests.support.storage import (
    PATIENT,
    PATIENT_COMMIT,
    Backend,
    PostgresDatabases,
    running,
    sqlite_url,
)


@pytest.fixture(params=["sqlite", "postgres"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """The contract holds for both."""
    names = {"sqlite": "sqlite_template", "postgres": "postgres_databases"}
    found: Backend = request.getfixturevalue(names[request.param])
    return found


@pytest.fixture
async def database_url(backend: Backend, tmp_path: Path) -> AsyncIterator[str]:
    """A migrated, empty database of each kind."""
    if isinstance(backend, PostgresDatabases):
        async with backend.lent() as url:
            yield url
    else:
        path = tmp_path / "service.db"
        shutil.copy(backend, path)
        yield sqlite_url(path)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url, PATIENT)
    yield opened
    await opened.close()


@pytest.fixture
async def event_log(database: Database) -> AsyncIterator[EventLog]:
    log = EventLog(database, PATIENT_COMMIT)
    async with running(log.run()):
        yield log
        await log.close()


@pytest.fixture
def experiments(database: Database) -> Experiments:
    return Experiments(database)


@pytest.fixture
def snapshots(database: Database) -> Snapshots:
    return Snapshots(database)


@pytest.fixture
def leases(database: Database) -> Leases:
    return Leases(database)


@pytest.fixture
async def experiment(experiments: Experiments) -> Experiment:
    return await experiments.create("doses", "{}")


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    """The app on each kind of database, with the experiments `doses` and `offers`."""
    async with running_api(database_url) as running_app:
        for declared in (DOSES, OFFERS):
            created = await running_app.http.post("/experiments", json=declared)
            assert created.status_code == 201, created.text
        yield running_app
