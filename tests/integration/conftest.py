"""Storage and the app on real databases; the same tests run on SQLite and on Postgres."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from service.records import Experiment
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.leases import Leases
from service.storage.snapshots import Snapshots
from tests.support.api import DOSES, OFFERS, Api, running_api
from tests.support.machines.pgbouncer import PgBouncer
from tests.support.processes.servers import running_server
from tests.support.storage import (
    PATIENT,
    PATIENT_COMMIT,
    Backend,
    PooledDatabases,
    PostgresDatabases,
    running,
    sqlite_url,
)

POOLED = pytest.param("pooled_databases", marks=pytest.mark.slow, id="pgbouncer")


@pytest.fixture(
    params=[
        pytest.param("sqlite_template", id="sqlite"),
        pytest.param("postgres_databases", id="postgres"),
        POOLED,
    ]
)
def backend(request: pytest.FixtureRequest) -> Backend:
    """The contract holds for each of them."""
    found: Backend = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session")
def pooled_databases(
    postgres_admin_url: str, postgres_databases: PostgresDatabases
) -> Iterator[PooledDatabases]:
    """Postgres through PgBouncer in transaction pooling."""
    with running_server(PgBouncer(postgres_admin_url)) as pooler:
        yield PooledDatabases(postgres_databases, pooler)


@pytest.fixture
async def database_url(backend: Backend, tmp_path: Path) -> AsyncIterator[str]:
    """A migrated, empty database of each kind."""
    if isinstance(backend, PostgresDatabases | PooledDatabases):
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
