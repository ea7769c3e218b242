"""A real Ray cluster of two nodes on this machine: equal bytes, and the work of a lost node done again."""

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from benchmarks.paper.executing import execute
from benchmarks.paper.jobs import Job
from benchmarks.paper.progress import Lines
from benchmarks.paper.runs import RunsFile
from service.evaluating.candidates import parsed
from service.evaluating.pieces.evaluation import DatabasePlace, evaluated_in_pieces
from service.evaluating.plan import EvaluationPlan
from service.evaluating.request import EvaluationRequest
from service.evaluating.running import EvaluationStores, evaluated_here, planned
from service.parallel.opening import EngineOptions, opened_engine
from service.storage.database import Database
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots
from tests.integration.cli.test_cli import daband
from tests.support.archives import archive
from tests.support.evaluations import played
from tests.support.storage import PATIENT, opened_log, sqlite_url
from tests.support.waiting import PATIENCE_SECONDS, wait_until

# Ray leaves its processes and sockets to the system when a cluster ends.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
    pytest.mark.usefixtures("keeps_logging"),
]

ROUNDS = 300
CANDIDATES = ("uniform", "arm:low", "arm:high", "system:linucb", "system:linucb,alpha=0.3")
NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without work of its own, and one node that works."""
    if find_spec("ray") is None:
        pytest.fail("Ray is missing: pip install -c constraints.txt -e '.[ray]'")
    from ray.cluster_utils import Cluster

    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    found = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
    try:
        yield found
    finally:
        found.shutdown()


def patiently(start: Callable[[], Any]) -> Any:
    """Start a part of a cluster: Ray gives it 30 s, which a busy machine may not keep."""
    for _ in range(4):
        try:
            return start()
        except Exception as error:
            if "timed out during startup" not in str(error):
                raise
    return start()


def node_of(cluster: Any) -> Any:
    """One more node that works."""
    return patiently(lambda: cluster.add_node(**NODE))


@pytest.fixture
def url(sqlite_template: Path, tmp_path: Path) -> str:
    path = tmp_path / "daband.db"
    path.write_bytes(sqlite_template.read_bytes())
    return sqlite_url(path)


def waiting_piece(folder: Path) -> str:
    """Note that it began, and wait until it may go on."""
    begun = len(list(folder.glob("begun-*")))
    (folder / f"begun-{begun}").touch()
    wait_until((folder / "go-on").exists)
    return f"begun {begun + 1} times"


def test_a_piece_of_a_lost_node_is_done_again(cluster: Any, tmp_path: Path):
    lost = node_of(cluster)
    with opened_engine(EngineOptions("ray", address=cluster.address)) as engine:
        assert engine is not None
        assert engine.workers == 1
        future = engine.submit(waiting_piece, tmp_path)
        wait_until((tmp_path / "begun-0").exists)
        cluster.remove_node(lost, allow_graceful=False)
        node_of(cluster)
        wait_until((tmp_path / "begun-1").exists)
        (tmp_path / "go-on").touch()
        assert future.result(PATIENCE_SECONDS) == "begun 2 times"


def refused(number: int) -> int:
    raise ValueError(f"{number} is refused")


def test_an_error_of_a_piece_is_its_own(cluster: Any):
    node_of(cluster)
    with opened_engine(EngineOptions("ray", address=cluster.address)) as engine:
        assert engine is not None
        with pytest.raises(ValueError, match=r"^3 is refused$"):
            list(engine.in_order(refused, [3]))


def test_two_nodes_one_of_them_lost_give_the_bytes_of_one_process(cluster: Any, url: str):
    node_of(cluster)
    lost = node_of(cluster)
    whole = asyncio.run(evaluated(url))
    seen: list[int] = []

    async def note(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 2:
            await asyncio.to_thread(cluster.remove_node, lost, allow_graceful=False)

    with opened_engine(EngineOptions("ray", address=cluster.address)) as engine:
        assert engine is not None
        assert engine.workers == 2
        parts = asyncio.run(evaluated(url, engine, note))
    assert len(seen) > 6
    assert json.dumps(parts) == json.dumps(whole)
    with opened_engine(EngineOptions("process", workers=2)) as engine:
        assert json.dumps(asyncio.run(evaluated(url, engine))) == json.dumps(whole)


def test_an_archived_log_is_replayed_on_ray_with_the_bytes_of_one_process(
    cluster: Any, url: str, tmp_path: Path
):
    node_of(cluster)
    asyncio.run(archived(url, tmp_path / "archive"))
    replay = ("replay", "lab", "--with", "alpha=0.5", "--json", "--data-dir", str(tmp_path))
    here = daband(*replay)
    there = daband(*replay, "--engine", "ray", "--address", cluster.address)
    assert there.exit_code == 0, there.output
    assert there.stdout == here.stdout
    assert json.loads(here.stdout)["rounds"] == ROUNDS


async def archived(url: str, folder: Path) -> None:
    """An experiment `lab`, most of whose log is in files."""
    options = replace(PATIENT, archive_place=str(folder))
    async with Database.opened(url, options) as database, opened_log(url) as log:
        experiment = await played(Experiments(database), log, "lab", ROUNDS)
        await archive(database, experiment, kept=100)


def test_runs_of_the_paper_on_ray_are_the_runs_in_threads(cluster: Any, tmp_path: Path):
    node_of(cluster)
    jobs = [Job("simulated:shifted-0", "linucb", seed, 64, test_limit=50) for seed in (0, 1)]
    found = []
    for where in (None, EngineOptions("ray", address=cluster.address)):
        runs = RunsFile(tmp_path / f"{where is None}")
        execute(jobs, runs, Lines(2), on_ray=where)
        records = sorted(runs.records(), key=lambda record: record["seed"])
        found.append([json.dumps([each["target"], each["source_recent"]]) for each in records])
    assert found[0] == found[1]


async def evaluated(url: str, engine: Any = None, *note: Any) -> dict[str, Any]:
    """The evaluation of the log at `url`, which is made the first time."""
    async with Database.opened(url, PATIENT) as database, opened_log(url) as log:
        experiments = Experiments(database)
        if not await experiments.list():
            await played(experiments, log, "lab", ROUNDS)
        experiment = await experiments.get("lab")
        request = EvaluationRequest(experiment="lab", candidates=tuple(map(parsed, CANDIDATES)))
        stores = EvaluationStores(experiments, EventLog(database), Snapshots(database))
        made = await planned(stores, experiment, request)
        plan = EvaluationPlan(made.experiment, made.request, made.blobs, made.bound, 100)
        if engine is None:
            return await evaluated_here(plan, EventLog(database))
        return await evaluated_in_pieces(plan, DatabasePlace(url, PATIENT), engine, *note)
