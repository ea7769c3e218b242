"""What operators see."""

import asyncio
from pathlib import Path

import pytest

from service.app import OutdatedSchemaError, create_app
from service.errors import problem_types
from service.settings import Settings
from tests.support.api import DOSES, Api, running_api
from tests.support.processes.servers import PostgresServer
from tests.support.storage import PostgresDatabases, sqlite_url
from tests.support.waiting import eventually


async def test_a_running_service_lives_and_is_ready(api: Api):
    assert (await api.http.get("/healthz")).json() == {"status": "ok"}
    assert (await api.http.get("/readyz")).json() == {"status": "ready"}


async def test_a_draining_service_lives_is_not_ready_and_sends_callers_away(api: Api):
    api.services.readiness.begin_drain()
    answer = await api.http.get("/readyz")
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/not-ready")
    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
    assert (await api.http.get("/healthz")).status_code == 200
    assert (await api.select()).status_code == 200  # what still comes is served


async def test_a_dead_task_turns_readiness_off(api: Api):
    api.services.readiness.fail("trainer")
    answer = await api.http.get("/readyz")
    assert (answer.status_code, answer.json()["task"]) == (503, "trainer")


async def test_metrics_speak_prometheus(api: Api):
    await api.select()
    answer = await api.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    for line in (
        'daband_request_seconds_count{method="POST",route="/select",status="2xx"} 1.0',
        "daband_append_events_count 1.0",
    ):
        assert line in answer.text


async def test_no_request_is_in_flight_once_all_are_answered(api: Api):
    await api.select()

    async def is_idle() -> bool:
        # An answer may arrive before its request is counted as done.
        return "daband_requests_in_flight 0.0" in (await api.http.get("/metrics")).text

    await eventually(is_idle)


async def test_every_problem_is_explained(api: Api):
    for slug, kind in problem_types().items():
        body = (await api.http.get(f"/problems/{slug}")).json()
        assert (body["type"], body["status"]) == (f"/problems/{slug}", kind.status)
    assert (await api.http.get("/problems/nonsense")).status_code == 404


async def test_the_docs_are_served(api: Api):
    page = await api.http.get("/docs")
    assert (page.status_code, "text/html" in page.headers["content-type"]) == (200, True)
    assert (await api.http.get("/openapi.json")).json() == api.app.openapi()


async def test_an_embedded_database_is_migrated_at_the_start(tmp_path: Path):
    async with running_api(sqlite_url(tmp_path / "new" / "daband.db")) as fresh:
        assert (await fresh.http.get("/readyz")).status_code == 200


async def test_an_old_schema_on_postgres_is_refused_with_the_command_to_run(
    postgres_databases: PostgresDatabases,
):
    async with postgres_databases.fresh(is_migrated=False) as url:
        app = create_app(Settings(database_url=url))
        with pytest.raises(OutdatedSchemaError, match="daband migrate"):
            async with app.router.lifespan_context(app):
                pass


async def test_without_its_database_the_service_says_503_and_recovers_by_itself(
    own_postgres: PostgresServer,
):
    async with running_api(own_postgres.url(), storage_timeout_seconds=2) as api:
        await eventually(lambda: _is_created(api))
        await eventually(lambda: _is_served(api, "before"))
        own_postgres.kill()
        await eventually(lambda: _is_unready(api))  # the last write counts for a second
        answers = await asyncio.gather(api.select("during"), api.http.get("/readyz"))
        for answer in answers:
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["type"] == "/problems/storage-unavailable"
        assert (await api.http.get("/healthz")).status_code == 200
        own_postgres.start()
        await eventually(lambda: _is_served(api, "during"))
        await eventually(lambda: _is_ready(api))


async def _is_created(api: Api) -> bool:
    return (await api.http.post("/experiments", json=DOSES)).status_code in (201, 409)


async def _is_ready(api: Api) -> bool:
    return (await api.http.get("/readyz")).status_code == 200


async def _is_unready(api: Api) -> bool:
    return (await api.http.get("/readyz")).status_code == 503


async def _is_served(api: Api, request_id: str) -> bool:
    return (await api.select(request_id)).status_code == 200
