"""The history through what stands between machines: a pooler, a balancer, standbys that are promoted."""

import math
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from service.bus.messages import HEADER
from service.records import uuid7
from tests.e2e.conftest import Adopt
from tests.support.http.clients import client_of
from tests.support.machines.cluster import LARGE, BalancedCluster, Cluster, Victim, survive
from tests.support.machines.pgbouncer import PgBouncer
from tests.support.machines.sentinel import watched_redis
from tests.support.machines.standby import Promotion, Standby
from tests.support.measuring import Measured
from tests.support.processes.daband import Daband
from tests.support.processes.history import NAME, Clients, History, state
from tests.support.processes.servers import PostgresServer, RedisServer, running_server
from tests.support.waiting import PATIENCE_SECONDS, eventually, wait_until

OFFERED_ROUNDS = 20  # a second
BETWEEN_ROUNDS = 15  # that are answered between two blows
ENOUGH_ROUNDS = int(LARGE["episode_length"])  # the same where there is one blow: for an encoder
AGAIN_SECONDS = 5.0  # from a blow until a new select is answered
STORAGE = {"STORAGE_TIMEOUT_SECONDS": 0.8}  # as in production, for what is measured
SIDE = {"context": [0.1, 0.2, 0.3, 0.4]}
SELECT: dict[str, Any] = {"experiment": NAME, "source": SIDE, "target": SIDE}

pytestmark = pytest.mark.slow


async def started(cluster: Cluster, adopt: Adopt[Daband]) -> None:
    for process in cluster.processes:
        adopt(process)
    await cluster.start()


class Timed:
    """A victim, and the seconds from the blow until a new select is answered."""

    def __init__(self, victim: Victim, cluster: Cluster, history: History) -> None:
        self._victim = victim
        self._history = history
        self._http = httpx.Client(base_url=cluster.urls[0], timeout=PATIENCE_SECONDS)
        self._select = {**SELECT, "request_id": f"timed-{uuid7()}"}
        self.seconds = math.inf

    def kill(self) -> None:
        self._began = time.monotonic()
        self._victim.kill()

    def start(self) -> None:
        self._victim.start()
        self.wait_for_an_answer()

    def wait_for_an_answer(self) -> None:
        with self._http:
            wait_until(self._is_answered)
        self.seconds = time.monotonic() - self._began

    def _is_answered(self) -> bool:
        try:
            answer = self._http.post("/select", json=self._select)
        except httpx.TransportError:
            return False
        if answer.is_success:
            self._history.asked[self._select["request_id"]] = self._select
            self._history.note_decision(self._select["request_id"], answer.json())
        return answer.is_success


class Missed(Timed):
    """The same of a victim that selects do without: they are answered before it is replaced."""

    def start(self) -> None:
        self.wait_for_an_answer()
        self._victim.start()


async def test_history_survives_kills_through_a_pooler(
    folder: Path,
    adopt: Adopt[Daband],
    own_postgres: PostgresServer,
    own_redis: RedisServer,
    measured: Measured,
):
    with running_server(PgBouncer(own_postgres.url())) as pooler:
        stores = (own_postgres, own_redis)
        cluster = Cluster(folder, pooler.url, own_redis.url, *stores, **STORAGE)
        await started(cluster, adopt)
        history = History()
        lost = Timed(pooler, cluster, history)
        blows = [*cluster.victims(4), lost]
        await survive(cluster, blows, own_postgres.url(), OFFERED_ROUNDS, BETWEEN_ROUNDS, history)
    measured.at_most("seconds without selects", lost.seconds, AGAIN_SECONDS)


async def test_history_survives_a_promoted_postgres(
    folder: Path,
    adopt: Adopt[Daband],
    own_postgres: PostgresServer,
    redis_url: str,
    measured: Measured,
):
    with running_server(Standby(own_postgres)) as standby:
        await standby.follow()
        hosts = f"127.0.0.1:{own_postgres.port},127.0.0.1:{standby.port}"
        url = f"postgresql://postgres@{hosts}/postgres"
        cluster = Cluster(folder, url, redis_url, **STORAGE)
        await started(cluster, adopt)
        history = History()
        failover = Timed(Promotion(own_postgres, standby), cluster, history)
        await survive(cluster, [failover], standby.url(), OFFERED_ROUNDS, ENOUGH_ROUNDS, history)
    measured.at_most("seconds without selects", failover.seconds, AGAIN_SECONDS)


async def test_what_the_standby_has_not_is_not_acknowledged(
    folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer, redis_url: str
):
    with running_server(Standby(own_postgres)) as standby:
        await standby.follow()
        cluster = Cluster(folder, own_postgres.url(), redis_url, STORAGE_TIMEOUT_SECONDS=2)
        await started(cluster, adopt)
        async with Clients(cluster.urls, History()) as clients, client_of(cluster.urls[0]) as http:
            await clients.create_experiment()
            standby.pause()
            repeated = {**SELECT, "request_id": "repeated"}
            refused = [await http.post("/select", json=repeated) for _ in range(2)]
            standby.resume()
            await clients.play(1)
    assert [each.status_code for each in refused] == [503, 503]
    assert all(int(each.headers["Retry-After"]) for each in refused)


async def test_history_survives_a_promoted_redis(
    folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer, measured: Measured
):
    url = own_postgres.url()
    with watched_redis() as redis:
        cluster = Cluster(folder, url, redis.url, REDIS_TIMEOUT_SECONDS=1)
        await started(cluster, adopt)
        history = History()
        failover = Missed(redis, cluster, history)
        await survive(cluster, [failover], url, OFFERED_ROUNDS, ENOUGH_ROUNDS, history)
        with Redis(port=redis.second.port) as promoted:
            await snapshots_flow(promoted, cluster)
    measured.at_most("seconds without selects", failover.seconds, AGAIN_SECONDS)


async def snapshots_flow(redis: Redis, cluster: Cluster) -> None:
    """Wait until all processes listen to the Redis, and it holds the newest snapshot."""
    newest = (await state(cluster.urls[0]))["policy_version"]

    def do_flow() -> bool:
        listening = dict(redis.pubsub_numsub("daband:snapshot"))
        values = map(redis.get, redis.scan_iter("daband:snapshot:*"))
        versions = [HEADER.unpack_from(each)[1] for each in values if isinstance(each, bytes)]
        return versions == [newest] and listening == {b"daband:snapshot": len(cluster.processes)}

    await eventually(do_flow, *cluster.processes)


async def test_history_survives_kills_behind_a_balancer(
    folder: Path,
    adopt: Adopt[Daband],
    own_postgres: PostgresServer,
    own_redis: RedisServer,
    measured: Measured,
):
    url = own_postgres.url()
    cluster = BalancedCluster(folder, url, own_redis.url, own_postgres, own_redis, **STORAGE)
    try:
        await started(cluster, adopt)
        cluster.balancer.start()
        history = History()
        lost = {
            "a group": Missed(cluster.servers[0], cluster, history),
            "the balancer": Timed(cluster.balancer, cluster, history),
        }
        # First, while the other group is surely ready.
        blows = [*lost.values(), *cluster.victims(len(cluster.targets))]
        await survive(cluster, blows, url, OFFERED_ROUNDS, BETWEEN_ROUNDS, history)
    finally:
        cluster.balancer.remove()
    for name, blow in lost.items():
        what = f"seconds without selects after the loss of {name}"
        measured.at_most(what, blow.seconds, AGAIN_SECONDS)
