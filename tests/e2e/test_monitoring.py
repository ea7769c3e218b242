"""Prometheus watches real processes: two workers that serve, and a trainer."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from daband_client import Client
from model.rounds import Domain
from model.simulate import ClusterWorld
from monitoring.alerts import recordings
from monitoring.dashboards import BOARDS
from service.cli.demo import Play, play
from tests.support.fixtures import emptied
from tests.support.http.clients import client_of
from tests.support.processes.daband import Daband, Server
from tests.support.processes.history import EXPERIMENT, NAME
from tests.support.processes.prometheus import PrometheusServer
from tests.support.processes.servers import free_port, running_server
from tests.support.processes.service import ServiceProcess
from tests.support.storage import PostgresDatabases
from tests.support.waiting import eventually
from tests.unit.project.test_monitoring import plain

BURST, REWARDS = 20, 10
MOST_ROUNDS = 20_000  # far more than the demo needs; it ends when all there is to see was seen
ASKED_EVERY = 10


@dataclass
class Watched:
    """A deployed service, and the address of the trainer's metrics."""

    server: Server
    trainer: Daband
    trainer_port: int


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_databases: PostgresDatabases,
    shared_redis_url: str,
) -> Iterator[Watched]:
    """One for all tests here: workers take long to start."""
    folder = tmp_path_factory.mktemp("watched")
    with asyncio.Runner() as runner, ExitStack() as stack:
        database = postgres_databases.fresh()
        stores = {"DATABASE_URL": runner.run(database.__aenter__())}
        stack.callback(lambda: runner.run(database.__aexit__(None, None, None)))
        stores |= {"REDIS_URL": emptied(shared_redis_url)}
        found = _watched(folder, stores)
        for process in (found.server, found.trainer):
            stack.callback(process.remove)
            process.start()
        runner.run(have_started(found.server, 2))
        yield found


def _watched(folder: Path, stores: dict[str, str]) -> Watched:
    port = free_port()
    server = Server(folder, "--workers", "2", "--no-trainer", **stores)
    return Watched(server, Daband(folder, "train", TRAINER_METRICS_PORT=port, **stores), port)


async def have_started(server: Server, count: int) -> None:
    """Wait until `count` workers have started in total."""

    async def have_begun() -> bool:
        return len(server.lines("service_started")) >= count

    await eventually(have_begun, server)


def samples(text: str) -> dict[str, float]:
    """Every sample by its name and labels."""
    return {
        f"{sample.name}{sorted(sample.labels.items())}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def metrics(server: Server) -> dict[str, float]:
    async with client_of(server.url) as http:
        return samples((await http.get("/metrics")).text)


async def burst(http: httpx.AsyncClient, start: int) -> list[str]:
    """The ids of new decisions, each asked for on a connection of its own."""

    async def select(number: int) -> str:
        body = {"experiment": NAME, "source": {"context": [1.0, 0.0, -1.0, 0.5]}}
        answer = await http.post("/select", json=body | {"request_id": f"r-{number}"})
        return str(answer.json()["source"]["decision_id"])

    return await asyncio.gather(*(select(number) for number in range(start, start + BURST)))


def counted(server: Server) -> list[float]:
    """The decisions that each worker has counted."""
    workers = server.workers()
    folder = Path(workers[0].environ()["PROMETHEUS_MULTIPROC_DIR"])
    merged = [
        MultiProcessCollector.merge(map(str, folder.glob(f"counter_{worker.pid}.db")))
        for worker in workers
    ]
    return [
        sum(s.value for family in each if family.name == "daband_decisions" for s in family.samples)
        for each in merged
    ]


async def send_to_both(server: Server, http: httpx.AsyncClient) -> list[str]:
    """Send until both workers have decided something; the ids of all decisions."""
    ids: list[str] = []

    async def have_both() -> bool:
        ids.extend(await burst(http, len(ids)))
        return min(counted(server)) > 0

    await eventually(have_both, server)
    return ids


async def test_two_workers_tell_the_sum_of_what_was_sent(watched: Watched):
    server = watched.server
    closing = {"Connection": "close"}
    async with client_of(server.url, **closing) as http:
        assert (await http.post("/experiments", json=EXPERIMENT)).status_code == 201
        ids = await send_to_both(server, http)
        for decision_id in ids[:REWARDS]:
            await http.post("/reward", json={"decision_id": decision_id, "reward": 0.5})
    labels = [("domain", "source"), ("experiment", NAME)]
    expected = {
        f"daband_decisions_total{labels}": len(ids),
        f"daband_rewards_total{labels}": REWARDS,
        f"daband_reward_points_total{labels}": REWARDS / 2,
        f"daband_request_seconds_count{request('/select')}": len(ids),
        f"daband_request_seconds_count{request('/reward')}": REWARDS,
        "daband_processes[]": 2,
        "daband_process_starts_total[]": 2,
        "daband_requests_in_flight[]": 0,
    }
    assert expected.items() <= (await metrics(server)).items()
    assert sum(counted(server)) == len(ids)

    server.workers()[0].kill()
    await have_started(server, 3)
    expected["daband_process_starts_total[]"] = 3
    assert expected.items() <= (await metrics(server)).items()


def request(route: str) -> list[tuple[str, str]]:
    return [("method", "POST"), ("route", route), ("status", "2xx")]


@contextmanager
def demo(url: str) -> Iterator[None]:
    """Played in a thread for as long as it is watched; the target policy is asked, too."""
    stopped = threading.Event()
    thread = threading.Thread(target=_play, args=(url, stopped))
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def _play(url: str, stopped: threading.Event) -> None:
    world = ClusterWorld(seed=1, arm_count=3, size=8)
    played = Play("demo")
    contexts = world.draw(Domain.TARGET, 4, "asked").contexts
    with Client(url) as client:
        for done in play(client, world, played, "daband", MOST_ROUNDS):
            if done % ASKED_EVERY == 0:
                client.target_select(played.experiment, contexts, confidence_floor=0.5)
            if stopped.is_set():
                return


@pytest.mark.slow
async def test_every_dashboard_query_and_recording_rule_returns_data(watched: Watched):
    queries = [plain(each) for board in BOARDS for panel in board.panels for each in panel.queries]
    missing = [*queries, *recordings()]
    with running_server(PrometheusServer()) as prometheus, demo(watched.server.url):
        prometheus.find("api", f"127.0.0.1:{watched.server.port}")
        prometheus.find("trainer", f"127.0.0.1:{watched.trainer_port}")

        async def is_all_there() -> bool:
            while missing and len(await asyncio.to_thread(prometheus.values, missing[-1])):
                missing.pop()
            return not missing

        try:
            await eventually(is_all_there)
        except AssertionError as error:
            raise AssertionError(f"no data: {missing[-1]}") from error
        assert prometheus.values("sum(up)") == [2.0]


@pytest.mark.slow
async def test_prometheus_finds_a_replica_that_comes_and_forgets_one_that_goes(tmp_path: Path):
    with ExitStack() as stack:
        addresses = [stack.enter_context(_replica(tmp_path / name)) for name in ("one", "two")]
        prometheus = stack.enter_context(running_server(PrometheusServer()))
        for found in (addresses, addresses[:1], addresses):
            prometheus.find("api", *found)

            async def are_up(count: float = len(found)) -> bool:
                ups = await asyncio.to_thread(prometheus.values, 'sum(up{job="api"})')
                starts = await asyncio.to_thread(
                    prometheus.values, "count(daband_process_starts_total)"
                )
                return ups == starts == [count]

            await eventually(are_up)


@contextmanager
def _replica(folder: Path) -> Iterator[str]:
    folder.mkdir()
    with ServiceProcess(folder, "--no-trainer") as service:
        yield f"127.0.0.1:{service.port}"
