"""Several serving processes and a trainer: what one accepts, all know soon."""

import asyncio
import signal
import time
from pathlib import Path

import psutil
import pytest

from daband_client import AsyncClient, Retries, Round
from daband_client.answers import Selected
from tests.e2e.conftest import Adopt
from tests.support.measuring import Measured, percentile
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import EXPERIMENT, NAME, Clients, History, check, idle_state
from tests.support.waiting import PATIENCE_SECONDS, eventually

REWARDS = 120  # so that one may come late
VISIBLE_SECONDS = 1.0
CONTEXT = [1.0, 0.0, -1.0, 0.5]


@pytest.fixture
async def servers(
    folder: Path, adopt: Adopt[Daband], postgres_url: str, redis_url: str
) -> list[Server]:
    """Two workers and a trainer."""
    shared = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url}
    made = [Server(folder, "--no-trainer", **shared) for _ in range(2)]
    for process in (*made, Daband(folder, "train", **shared)):
        adopt(process).start()
    for server in made:
        await server.ready()
    return made


async def visible_after(teller: AsyncClient, all_of_them: list[AsyncClient]) -> float:
    """Seconds from a reward that one accepts to selects of all that know of it."""
    decision = (await teller.select(NAME, Round(source=CONTEXT))).source
    assert decision is not None
    before = [await each.select(NAME, Round(source=CONTEXT)) for each in all_of_them]
    await teller.reward(decision.decision_id, 1.0)
    began = time.monotonic()
    seen = (
        sees_another_score(each, known, decision.arm)
        for each, known in zip(all_of_them, before, strict=True)
    )
    await asyncio.wait_for(asyncio.gather(*seen), PATIENCE_SECONDS)
    return time.monotonic() - began


async def sees_another_score(client: AsyncClient, before: Selected, arm: str) -> None:
    """Select until the arm's score is no longer what it was."""
    assert before.source is not None
    while True:
        after = await client.select(NAME, Round(source=CONTEXT))
        assert after.source is not None
        assert after.policy_version >= before.policy_version
        if after.source.scores[arm] != before.source.scores[arm]:
            assert after.policy_version > before.policy_version
            return
        await asyncio.sleep(0.02)


async def test_a_reward_is_visible_everywhere(servers: list[Server], measured: Measured):
    async with AsyncClient(servers[0].url) as one, AsyncClient(servers[1].url) as other:
        no_training = EXPERIMENT["config"] | {"episode_length": 100_000}
        await one.create_experiment(**{**EXPERIMENT, "config": no_training})
        await visible_after(one, [one, other])  # the trainer has found the experiment
        seconds = [
            await visible_after(teller, [one, other])
            for _ in range(REWARDS // 2 if measured.is_held else 1)
            for teller in (one, other)
        ]
    measured.at_most("seconds to visible, p99", percentile(seconds, 99), VISIBLE_SECONDS)


async def test_a_worker_that_is_killed_is_replaced_and_none_outlives_the_parent(
    folder: Path, adopt: Adopt[Daband], postgres_url: str, redis_url: str
):
    stores = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url}
    parent = Server(folder, "--workers", "2", "--no-trainer", **stores)
    adopt(parent)
    trainer = adopt(Daband(folder, "train", **stores))
    parent.start()
    trainer.start()
    await started(parent, 2)
    async with Clients([parent.url], History()) as clients:
        await clients.create_experiment()
        await clients.play(50)
        parent.workers()[0].kill()
        await clients.play(50)
        await started(parent, 3)
        await clients.play(50)
    await idle_state(parent.url, parent, trainer)
    await check(clients.history, postgres_url)
    orphans = parent.workers()
    parent.send_to_parent(signal.SIGKILL)
    gone, alive = await asyncio.to_thread(psutil.wait_procs, orphans, PATIENCE_SECONDS)
    assert (len(gone), alive) == (2, [])


async def started(parent: Server, count: int) -> None:
    """Wait until `count` workers have started in total."""

    async def have_begun() -> bool:
        return len(parent.lines("service_started")) >= count

    await eventually(have_begun, parent)


@pytest.mark.slow
async def test_ctrl_c_ends_all_workers_in_order(
    folder: Path, adopt: Adopt[Daband], postgres_url: str, redis_url: str
):
    stores = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url}
    parent = Server(folder, "--workers", "2", "--no-trainer", **stores)
    adopt(parent)
    parent.start()
    await started(parent, 2)
    async with AsyncClient(parent.url, Retries(attempts=1)) as client:
        assert await client.experiments() == []
    parent.send(signal.SIGINT)
    assert parent.wait() == 0, parent.tail()
