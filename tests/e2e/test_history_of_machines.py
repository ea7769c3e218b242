"""The history through what stands between machines."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Adopt
from tests.support.machines.cluster import Cluster, survive
from tests.support.machines.pgbouncer import PgBouncer
from tests.support.processes.daband import Daband
from tests.support.processes.servers import PostgresServer, RedisServer, running_server

OFFERED_ROUNDS = 20  # a second
BETWEEN_ROUNDS = 15  # that are answered between two blows

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
