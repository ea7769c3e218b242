"""Whoever can write to Redis ends no process and changes no policy; learning goes on through the same Redis."""

import hashlib
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from redis.asyncio import Redis

from model.learner import Learner
from model.state.snapshot import to_bytes
from service.bus.bus import RedisOptions
from service.bus.messages import HEADER, MAGIC, Topic
from service.experiment_spec import ExperimentSpec
from service.storage.database import Database
from service.storage.experiments import Experiments
from tests.e2e.conftest import Adopt
from tests.support.http.clients import client_of
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import NAME, Clients, History, state
from tests.support.storage import PATIENT
from tests.support.waiting import eventually

NO_NAMES = (
    b"\xff\xfe",
    b"",
    b"\0",
    b"a\0b",
    b"/",
    b"a/b/c",
    b" rounds",
    b"x" * 194,
    b"x" * 100_000,
)
HUGE_VERSION = 10**9
PREFIX = RedisOptions().prefix


@dataclass
class Attacked:
    """Two servers and two trainers, and their Redis in an attacker's hands."""

    servers: list[Server]
    trainers: list[Daband]
    redis: Redis
    database_url: str

    @property
    def processes(self) -> list[Daband]:
        return [*self.servers, *self.trainers]

    async def served(self) -> list[int]:
        """The version that each server decides with."""
        versions = []
        for server in self.servers:
            async with client_of(server.url) as http:
                body = {"experiment": NAME, "source": {"context": [0.1, 0.2, 0.3, 0.4]}}
                answer = await http.post("/select", json=body)
            assert answer.status_code == 200, answer.text
            versions.append(answer.json()["policy_version"])
        return versions

    async def learn(self) -> None:
        """Play until every server has taken one more version; with such a long poll, by Redis alone."""
        before = max(await self.served())
        async with Clients([each.url for each in self.servers], History()) as clients:

            async def is_newer() -> bool:
                await clients.play(2)
                return min(await self.served()) > before

            await eventually(is_newer, *self.processes)

    async def refused(self, reason: str) -> list[float]:
        """How much each server has refused for this reason."""
        name = f'daband_bus_refused_total{{reason="{reason}"}} '
        counts = []
        for server in self.servers:
            async with client_of(server.url) as http:
                lines = (await http.get("/metrics")).text.splitlines()
            counts.append(sum(float(line.split()[-1]) for line in lines if line.startswith(name)))
        return counts

    async def announce(self) -> None:
        await self.redis.publish(f"{PREFIX}:{Topic.SNAPSHOT}", NAME)

    def all_live(self) -> bool:
        return all(each.is_running and each.starts == 1 for each in self.processes)


@pytest.fixture
async def attacked(
    folder: Path, adopt: Adopt[Daband], postgres_url: str, redis_url: str
) -> AsyncIterator[Attacked]:
    shared = {"DATABASE_URL": postgres_url, "REDIS_URL": redis_url, "POLL_SECONDS": 3600}
    made = Attacked(
        [Server(folder, "--no-trainer", **shared) for _ in range(2)],
        [Daband(folder, "train", **shared) for _ in range(2)],
        Redis.from_url(redis_url),
        postgres_url,
    )
    for process in made.processes:
        adopt(process).start()
    for server in made.servers:
        await server.ready()
    async with Clients([made.servers[0].url], History()) as clients:
        await clients.create_experiment(episode_length=100_000)
    await made.learn()
    yield made
    await made.redis.aclose()


async def test_messages_of_any_bytes_end_no_process(attacked: Attacked):
    for message in NO_NAMES:
        for topic in Topic:
            await attacked.redis.publish(f"{PREFIX}:{topic}", message)

    async def have_arrived() -> bool:
        return not attacked.all_live() or min(await attacked.refused("message")) >= len(NO_NAMES)

    await eventually(have_arrived, *attacked.processes)
    assert attacked.all_live()
    await attacked.learn()
    assert attacked.all_live()


async def test_a_forged_snapshot_is_refused_and_the_next_good_one_served(attacked: Attacked):
    async with Database.opened(attacked.database_url, PATIENT) as database:
        experiment = await Experiments(database).get(NAME)
    spec = ExperimentSpec.of(experiment)
    blob = to_bytes(Learner(spec.bandit_config(), spec.seed), HUGE_VERSION)
    key = f"{PREFIX}:snapshot:{experiment.experiment_id}"

    async def is_over() -> bool:
        # Again and again: the trainer may publish between the value and its announcement.
        await attacked.redis.set(key, digested(experiment.experiment_id, blob))
        await attacked.announce()
        is_served = max(await attacked.served()) == HUGE_VERSION
        return is_served or min(await attacked.refused("signature")) > 0

    await eventually(is_over, *attacked.processes)
    newest = (await state(attacked.servers[0].url))["policy_version"]
    assert max(await attacked.served()) <= newest < HUGE_VERSION
    await attacked.learn()
    assert attacked.all_live()


def digested(experiment_id: str, blob: bytes) -> bytes:
    """A value with a digest that anyone can make, for want of the key."""
    name = experiment_id.encode()
    facts = struct.pack(">QQQ", len(name), HUGE_VERSION, 0)
    digest = hashlib.sha256(facts + name + blob).digest()
    return HEADER.pack(MAGIC, HUGE_VERSION, 0, digest) + blob
