"""Builds side by side over one database: forward, back and forward again, without a failed request."""

import io
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.processes.history import Clients, History, check, idle_state
from tests.support.processes.servers import PostgresServer, running_server
from tests.support.processes.service import ROOT, ServiceProcess, clean_environment

# Before connections through poolers; of the builds that are not released yet, one as good as any.
EARLIER = "b60435a"
ROUNDS = 25


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A checkout of the earlier build."""
    folder = tmp_path / "earlier"
    packed = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=False)
    assert packed.returncode == 0, f"this test needs the history of git: {packed.stderr.decode()}"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def migrate(checkout: Path, url: str) -> None:
    """Bring the database to the schema of a build."""
    command = [sys.executable, "-m", "service.cli", "migrate"]
    environment = clean_environment({"DABAND_DATABASE_URL": url})
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
async def test_builds_follow_each_other_without_a_failed_request(
    earlier: Path, tmp_path: Path, redis_url: str
):
    history, phases = History(), iter("abcde")

    def build(name: str, checkout: Path) -> ServiceProcess:
        folder = tmp_path / name
        folder.mkdir()
        settings = {"DATABASE_URL": url, "REDIS_URL": redis_url, "LEASE_SECONDS": "1"}
        settings["TRAINING"] = "thread"  # a process would import this checkout
        return ServiceProcess(folder, checkout=checkout, **settings)

    async def play(*servers: ServiceProcess) -> None:
        urls = [server.url for server in servers]
        async with Clients(urls, history, prefix=next(phases)) as clients:
            await clients.create_experiment()
            await clients.play(ROUNDS)

    with running_server(PostgresServer()) as postgres:
        url = postgres.url()
        migrate(earlier, url)
        with build("old", earlier) as old:
            await play(old)
            migrate(ROOT, url)
            await play(old)  # it meets the later schema
            with build("new", ROOT) as new:
                await play(old, new)
                new.stop()
            await play(old)  # back
            with build("newest", ROOT) as newest:
                await play(old, newest)
                old.stop()
                await idle_state(newest.url)
                await check(history, url)
    assert history.statuses.keys() == {200, 201, 409}
    assert history.statuses[409] == len("bcde")  # the experiment is there already
