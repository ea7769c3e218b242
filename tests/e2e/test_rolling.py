"""Builds side by side over one database: forward, back and forward again, without a failed request.

Clients go on while the schema is migrated and while a build stops: what it leaves is asked of the other.
The database begins with the experiments of the first build that kept one, played on by each build.
"""

import asyncio
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.oracles.make_database import FOLDER, ROUNDS, idle_state, load, play, repeat
from tests.support.http.clients import client_of
from tests.support.machines.cluster import LARGE
from tests.support.processes import history as rounds
from tests.support.processes.history import Clients, History, check
from tests.support.processes.servers import PostgresServer, running_server
from tests.support.processes.service import ROOT, ServiceProcess, clean_environment
from tests.support.storage import sqlite_url
from tests.support.waiting import eventually

# Before connections through poolers; of the builds that are not released yet, one as good as any.
EARLIER = "b60435a"
FIRST = "2026-11-18"  # the oldest database that is stored
PLAYED = ("doses", "linear")
OFFERED_ROUNDS = 10  # a second, while something is done
NEW_ROUNDS = 25  # of the experiment that the earlier build creates, in each phase
MORE_ROUNDS = 4  # of each stored experiment


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A checkout of the earlier build."""
    folder = tmp_path / "earlier"
    packed = subprocess.run(["git", "archive", EARLIER], cwd=ROOT, capture_output=True, check=False)
    assert packed.returncode == 0, f"this test needs the history of git: {packed.stderr.decode()}"
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


def daband(checkout: Path, url: str, *arguments: str) -> None:
    """Run a command of a build on a database."""
    done = subprocess.run(
        [sys.executable, "-m", "service.cli", *arguments],
        cwd=checkout,
        env=clean_environment({"DABAND_DATABASE_URL": url}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def fill(checkout: Path, folder: Path, url: str) -> None:
    """Move the stored database into an empty one, by a build."""
    file, stored = str(folder / "first.backup"), sqlite_url(folder / "first.db")
    load((FOLDER / f"{FIRST}.sql.gz").read_bytes(), folder / "first.db")
    daband(checkout, stored, "migrate")
    daband(checkout, stored, "backup", file)
    daband(checkout, url, "migrate")
    daband(checkout, url, "restore", file)


class FirstExperiments:
    """The stored experiments: what was asked of them, and what they answered."""

    def __init__(self) -> None:
        stored = json.loads((FOLDER / f"{FIRST}.json").read_text())
        self._asked: list[dict[str, Any]] = stored["requests"]
        self.rounds = ROUNDS

    async def go_on(self, *urls: str) -> None:
        """Ask all of it again, and play more rounds on any of the servers."""
        for url, name in zip(cycle(urls), PLAYED, strict=False):
            async with client_of(url) as http:
                await repeat(http, self._asked)
                self._asked += await play(http, name, MORE_ROUNDS, start=self.rounds)
        self.rounds += MORE_ROUNDS

    async def check(self, url: str) -> None:
        """All of it is answered as before, and learned."""
        async with client_of(url) as http:
            await repeat(http, self._asked)
            for name in PLAYED:
                learned = await idle_state(http, name)
                assert learned["counts"]["source_rewards"] == self.rounds


async def rewarded(history: History, rounds: int) -> None:
    """Wait until so many more rounds are over."""
    goal = len(history.rewarded) + rounds
    await eventually(lambda: len(history.rewarded) >= goal)


@pytest.mark.slow
async def test_builds_follow_each_other_without_a_failed_request(
    earlier: Path, tmp_path: Path, redis_url: str
):
    history, first, phases = History(), FirstExperiments(), iter("abcdefgh")

    def build(name: str, checkout: Path) -> ServiceProcess:
        folder = tmp_path / name
        folder.mkdir()
        settings = {"DATABASE_URL": url, "REDIS_URL": redis_url, "LEASE_SECONDS": "1"}
        settings["TRAINING"] = "thread"  # a process would import this checkout
        return ServiceProcess(folder, checkout=checkout, **settings)

    async def go_on(*servers: ServiceProcess) -> None:
        urls = [server.url for server in servers]
        async with Clients(urls, history, prefix=next(phases)) as clients:
            await clients.create_experiment(**LARGE)
            await clients.play(NEW_ROUNDS)
        await first.go_on(*urls)

    async def go_on_during(work: Callable[[], None], *servers: ServiceProcess) -> None:
        """Rounds come without a pause before, while and after something is done."""
        is_over = asyncio.Event()
        urls = [server.url for server in servers]
        async with (
            Clients(urls, history, prefix=next(phases)) as clients,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(clients.offer(OFFERED_ROUNDS, until=is_over))
            await rewarded(history, NEW_ROUNDS)
            await asyncio.to_thread(work)
            await rewarded(history, NEW_ROUNDS)
            is_over.set()

    with running_server(PostgresServer()) as postgres:
        url = postgres.url()
        fill(earlier, tmp_path, url)
        with build("old", earlier) as old:
            await go_on(old)
            await go_on_during(lambda: daband(ROOT, url, "migrate"), old)
            await go_on(old)  # it meets the later schema
            with build("new", ROOT) as new:
                await go_on(old, new)
                await go_on_during(new.stop, old, new)
            await go_on(old)  # back
            with build("newest", ROOT) as newest:
                await go_on(old, newest)
                await go_on_during(old.stop, old, newest)
                await rounds.idle_state(newest.url)
                await check(history, url)
                await first.check(newest.url)
    assert history.statuses.keys() == {200, 201, 409}
    assert history.statuses[409] == 4  # the experiment is there already
