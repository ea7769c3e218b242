"""The history through what stands between machines: a pooler, a balancer, standbys that are promoted."""

import time
from pathlib import Path

import httpx
import pytest
from redis import Redis

from service.bus.messages import HEADER
from tests.e2e.conftest import Adopt
from tests.support.http.clients import client_of
from tests.support.machines.cluster import BalancedCluster, Cluster, Victim, survive
from tests.support.machines.pgbouncer import PgBouncer
from tests.support.machines.sentinel import watched_redis
from tests.support.machines.standby import Promotion, Standby
from tests.support.measuring import Measured
from tests.support.processes.daband import Daband
from tests.support.processes.history import NAME, Clients, History, state
from tests.support.processes.servers import PostgresServer, RedisServer, running_server
from tests.support.waiting import eventually, wait_until

OFFERED_ROUNDS = 20  # a second
BETWEEN_ROUNDS = 15  # that are answered between two blows
PROMOTION_SECONDS = 5.0
SIDE = {"context": [0.1, 0.2, 0.3, 0.4]}
SELECT = {"experiment": NAME, "request_id": "timed", "source": SIDE, "target": SIDE}

pytestmark = pytest.mark.slow


async def started(cluster: Cluster, adopt: Adopt[Daband]) -> None:
    for process in cluster.processes:
        adopt(process)
    await cluster.start()


async def test_history_survives_kills_through_a_pooler(
    folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer, own_redis: RedisServer
):
    with running_server(PgBouncer(own_postgres.url())) as pooler:
        stores = (own_postgres, pooler, own_redis)
        cluster = Cluster(folder, pooler.url, own_redis.url, *stores)
        await started(cluster, adopt)
        await survive(
            cluster, cluster.victims(4), own_postgres.url(), OFFERED_ROUNDS, BETWEEN_ROUNDS
        )


class Timed:
    """A blow, and the seconds from it until a new select is answered."""

    def __init__(self, victim: Victim, cluster: Cluster, history: History) -> None:
        self._victim = victim
        self._history = history
        self._url = cluster.urls[0]
        self.seconds = 0.0

    def kill(self) -> None:
        self._began = time.monotonic()
        self._victim.kill()

    def start(self) -> None:
        self._victim.start()
        wait_until(self._is_answered)
        self.seconds = time.monotonic() - self._began

    def _is_answered(self) -> bool:
        answer = httpx.post(f"{self._url}/select", json=SELECT)
        if answer.is_success:
            self._history.asked["timed"] = SELECT
            self._history.note_decision("timed", answer.json())
        return answer.is_success


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
        cluster = Cluster(folder, url, redis_url, STORAGE_TIMEOUT_SECONDS=0.8)
        await started(cluster, adopt)
        history = History()
        failover = Timed(Promotion(own_postgres, standby), cluster, history)
        rounds = 2 * BETWEEN_ROUNDS
        await survive(cluster, [failover], standby.url(), OFFERED_ROUNDS, rounds, history)
    measured.at_most("seconds without selects", failover.seconds, PROMOTION_SECONDS)


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
            refused = [await http.post("/select", json=SELECT) for _ in range(2)]
            standby.resume()
            await clients.play(1)
    assert [each.status_code for each in refused] == [503, 503]
    assert all(int(each.headers["Retry-After"]) for each in refused)


async def test_history_survives_a_promoted_redis(
    folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer
):
    url = own_postgres.url()
    with watched_redis() as redis:
        cluster = Cluster(folder, url, redis.url, REDIS_TIMEOUT_SECONDS=1)
        await started(cluster, adopt)
        await survive(cluster, [redis], url, OFFERED_ROUNDS, 2 * BETWEEN_ROUNDS)
        with Redis(port=redis.second.port) as promoted:
            await snapshots_flow(promoted, cluster)


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
    folder: Path, adopt: Adopt[Daband], own_postgres: PostgresServer, own_redis: RedisServer
):
    url = own_postgres.url()
    cluster = BalancedCluster(folder, url, own_redis.url, own_postgres, own_redis)
    try:
        await started(cluster, adopt)
        cluster.balancer.start()
        blows = cluster.victims(len(cluster.targets))
        await survive(cluster, blows, url, OFFERED_ROUNDS, BETWEEN_ROUNDS)
    finally:
        cluster.balancer.remove()
