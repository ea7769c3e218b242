"""Encoders train in a separate process, which serving does not depend on."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.conftest import Adopt
from tests.support.http.clients import client_of
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import EXPERIMENT, Clients, History, check, idle_state, state
from tests.support.storage import sqlite_url
from tests.support.waiting import PATIENCE_SECONDS, eventually

QUICK = {"LEASE_SECONDS": 1, "POLL_SECONDS": 0.1}
EPISODE = int(EXPERIMENT["config"]["episode_length"])
CPU_SECONDS = 6.0  # of training: enough to see which process spends them
ENDLESS = 100_000  # steps: minutes
DEATHS = "daband_training_process_deaths_total"


def trainers(server: Server) -> list[psutil.Process]:
    """The training processes of a server."""
    found = psutil.Process(server.pid).children()
    return [each for each in found if "service.learning.jobs.training_process" in each.cmdline()]


def cpu_seconds(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


async def begun(server: Server, clients: Clients, **config: Any) -> psutil.Process:
    """The training process, at work on a first encoder."""
    await clients.create_experiment(**config)
    await clients.play(EPISODE)

    async def is_at_work() -> bool:
        return bool(trainers(server)) and bool((await state(server.url))["is_training"])

    await eventually(is_at_work, server)
    return trainers(server)[0]


async def served(folder: Path, adopt: Adopt[Daband], **settings: object) -> Server:
    server = Server(folder, **(QUICK | settings))
    adopt(server)
    server.start()
    await server.ready()
    return server


async def share_of_the_server(server: Server) -> float:
    """The serving process's fraction of the CPU time while an encoder trains without requests."""
    ours = psutil.Process(server.pid)
    before = cpu_seconds(ours)

    def spent() -> tuple[float, float]:
        return cpu_seconds(ours) - before, sum(map(cpu_seconds, trainers(server)))

    async def is_enough() -> bool:
        return sum(spent()) >= CPU_SECONDS

    await eventually(is_enough, server)
    here, there = spent()
    return here / (here + there)


@pytest.mark.parametrize(("training", "is_spared"), [("process", True), ("thread", False)])
@pytest.mark.slow
async def test_training_takes_the_serving_process_no_time(
    training: str, is_spared: bool, folder: Path, adopt: Adopt[Daband]
):
    server = await served(folder, adopt, TRAINING=training, POLL_SECONDS=1)
    async with Clients([server.url], History()) as clients:
        await clients.create_experiment(steps_per_episode=ENDLESS)
        await clients.play(EPISODE)
        share = await share_of_the_server(server)
    # The trainer looks into the log now and then: not nothing, but far from half.
    assert (share < 0.5) is is_spared, f"{share:.0%}"


async def test_killed_training_and_killed_server_lose_and_double_nothing(
    folder: Path, adopt: Adopt[Daband]
):
    server = await served(folder, adopt, TRAINING="process")
    async with Clients([server.url], History()) as clients:
        child = await begun(server, clients)
        child.kill()
        await eventually(lambda: has_died(server), server)
        await clients.play(EPISODE)
        orphans = trainers(server)
        server.send_to_parent(signal.SIGKILL)
        server.wait()
        assert (await asyncio.to_thread(psutil.wait_procs, orphans, PATIENCE_SECONDS))[1] == []
        server.start()
        await server.ready()
        await clients.play(EPISODE)
    assert (await idle_state(server.url, server))["encoder_version"] > 0
    await check(clients.history, sqlite_url(folder / "data" / "daband.db"))


async def has_died(server: Server) -> bool:
    async with client_of(server.url) as client:
        shown = (await client.get("/metrics")).text
    return f"{DEATHS} 1.0" in shown and bool(server.lines("training_process_died"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_server_that_ends_takes_its_training_along(
    number: signal.Signals, folder: Path, adopt: Adopt[Daband]
):
    server = await served(folder, adopt, TRAINING="process")
    async with Clients([server.url], History()) as clients:
        child = await begun(server, clients, steps_per_episode=ENDLESS)
    server.send_to_parent(number)
    code = await asyncio.to_thread(server.wait)
    assert code == (0 if number is signal.SIGTERM else -number)
    assert (await asyncio.to_thread(psutil.wait_procs, [child], PATIENCE_SECONDS))[1] == []
