"""A leading trainer that was stopped and wakes up after another took over can do no harm."""

import asyncio
import signal
from pathlib import Path

import psutil
import pytest

from service.errors import StaleEpoch
from service.ops.failpoints import Failpoint
from tests.e2e.conftest import Adopt
from tests.support.http.clients import client_of
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import NAME, Clients, History, check, idle_state, state
from tests.support.waiting import eventually

QUICK = {"LEASE_SECONDS": 1, "POLL_SECONDS": 0.1}
ROUNDS_A_SECOND = 20


class Trainers:
    """A server, a trainer that leads and gets stopped, and one that takes over."""

    def __init__(self, folder: Path, adopt: Adopt[Daband], **stores: str) -> None:
        self.server = Server(folder, "--no-trainer", **stores, **QUICK)
        self.old, self.new = (Daband(folder, "train", **stores, **QUICK) for _ in range(2))
        self.all = [self.server, self.old, self.new]
        for process in self.all:
            adopt(process)

    async def logged(self, process: Daband, *actions: str) -> None:
        """Wait for a line of a process that says one of these."""

        async def are_there() -> bool:
            return any(process.lines(action) for action in actions)

        await eventually(are_there, *self.all)

    async def published(self, versions: int) -> None:
        """Wait until `versions` more versions are published."""
        goal = (await state(self.server.url))["policy_version"] + versions

        async def are_there() -> bool:
            return bool((await state(self.server.url))["policy_version"] >= goal)

        await eventually(are_there, *self.all)

    async def check_versions(self) -> None:
        """No version twice, none left out, and none of an earlier leader after a later one's."""
        async with client_of(self.server.url) as client:
            listed = (await client.get(f"/experiments/{NAME}/snapshots?limit=1000")).json()
        found = [(each["version"], each["epoch"], each["offset"]) for each in listed["snapshots"]]
        found.reverse()
        versions, epochs, offsets = zip(*found, strict=True)
        assert versions == tuple(range(1, len(versions) + 1))
        assert epochs == tuple(sorted(epochs))
        assert len(set(epochs)) >= 2
        assert offsets == tuple(sorted(offsets))


async def stop_before_publish(trainers: Trainers) -> None:
    """It stops itself with the new snapshot in its hands."""
    trainers.old.start(FAIL_AT=f"{Failpoint.BEFORE_SNAPSHOT}:3:STOP")
    await trainers.logged(trainers.old, "leadership_begun")


async def stop_anywhere(trainers: Trainers) -> None:
    """It is stopped wherever it happens to be."""
    trainers.old.start()
    await trainers.logged(trainers.old, "leadership_begun")
    await trainers.published(2)
    trainers.old.send(signal.SIGSTOP)


async def stop_beside_its_training(trainers: Trainers) -> None:
    """It is stopped while its training process goes on."""
    trainers.old.start(TRAINING="process")
    await trainers.logged(trainers.old, "leadership_begun", "episode_trained")
    await trainers.published(2)
    (child,) = psutil.Process(trainers.old.pid).children()
    trainers.old.send_to_parent(signal.SIGSTOP)
    assert child.status() != psutil.STATUS_STOPPED


@pytest.mark.parametrize(
    "stop",
    [
        stop_before_publish,
        pytest.param(stop_anywhere, marks=pytest.mark.slow),
        pytest.param(stop_beside_its_training, marks=pytest.mark.slow),
    ],
)
async def test_a_leader_that_wakes_up_late_is_refused(
    stop, folder: Path, adopt: Adopt[Daband], postgres_url: str, redis_url: str
):
    trainers = Trainers(
        folder, adopt, DATABASE_URL=postgres_url, REDIS_URL=redis_url, KEPT_SNAPSHOTS="1000"
    )
    trainers.server.start()
    await trainers.server.ready()
    history, is_over = History(), asyncio.Event()
    async with Clients([trainers.server.url], history) as clients:
        await clients.create_experiment()
        playing = asyncio.create_task(clients.offer(ROUNDS_A_SECOND, until=is_over))
        await stop(trainers)
        trainers.new.start()
        await trainers.logged(trainers.new, "leadership_begun")
        await trainers.published(2)
        trainers.old.send(signal.SIGCONT)
        # Stopped in the middle of a database call it sees that time out before it sees the lease.
        await trainers.logged(trainers.old, "lease_lost", "trainer_waits")
        await trainers.published(2)
        is_over.set()
        await playing
    if stop is stop_before_publish:
        # On a busy machine it may have lost and taken the lease before, too.
        losses = [line["message"] for line in trainers.old.lines("lease_lost")]
        assert any(StaleEpoch.default_detail() in each for each in losses), losses
    assert trainers.old.is_running
    await idle_state(trainers.server.url, *trainers.all)
    await trainers.check_versions()
    await check(history, postgres_url)


async def test_when_the_leader_ends_in_order_the_next_one_need_not_wait(
    folder: Path, adopt: Adopt[Daband], postgres_url: str, redis_url: str
):
    patient = {"LEASE_SECONDS": 3600}
    trainers = Trainers(folder, adopt, DATABASE_URL=postgres_url, REDIS_URL=redis_url)
    trainers.server.start()
    await trainers.server.ready()
    async with Clients([trainers.server.url], History()) as clients:
        await clients.create_experiment()
        await clients.play(2)
        trainers.old.start(**patient)
        await trainers.logged(trainers.old, "leadership_begun")
        trainers.new.start()
        assert trainers.old.stop() == 0
        await clients.play(2)
        await trainers.logged(trainers.new, "leadership_begun")
