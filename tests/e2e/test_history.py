"""Nothing acknowledged is lost or counted twice, whichever processes are killed."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Adopt
from tests.support.machines.cluster import Cluster, WorkersCluster, survive
from tests.support.measuring import Measured
from tests.support.processes.daband import Daband
from tests.support.processes.servers import PostgresServer, RedisServer

OFFERED_ROUNDS = 80  # a second
LEAST_EVENTS = 200  # a second while all servers run, where times are measured
AGAIN_SECONDS = 15.0  # until a round is over after the start of a server with two workers
BETWEEN_ROUNDS = 60  # that are answered between two blows
SHORT = 3  # kills; so short a history is played at a quarter of that, and its speed not looked at


LONG = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(
    ("kind", "kills"),
    [
        (Cluster, SHORT),
        pytest.param(WorkersCluster, 4, marks=pytest.mark.slow),  # each of its targets once
        pytest.param(Cluster, 24, marks=LONG),
        pytest.param(WorkersCluster, 24, marks=LONG),
    ],
)
async def test_history_survives_kills_and_restarts(
    kind: type[Cluster],
    kills: int,
    folder: Path,
    adopt: Adopt[Daband],
    own_postgres: PostgresServer,
    own_redis: RedisServer,
    measured: Measured,
):
    url = own_postgres.url()
    cluster = kind(folder, url, own_redis.url, own_postgres, own_redis)
    for process in cluster.processes:
        adopt(process)
    await cluster.start()
    offered, between = OFFERED_ROUNDS, BETWEEN_ROUNDS
    if kills <= SHORT:
        offered, between = offered // 4, between // 4
    seconds = await survive(cluster, cluster.victims(kills), url, offered, between)
    longest = seconds.longest_wait
    measured.at_most("longest seconds from a restart until a round is over", longest, AGAIN_SECONDS)
    if kills > SHORT:
        measured.at_most(
            "seconds of an event while all servers run", seconds.an_event, 1 / LEAST_EVENTS
        )
