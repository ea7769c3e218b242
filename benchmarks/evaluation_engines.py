"""How an evaluation scales with workers: 5 candidates on one log, in processes or on Ray.

    python -m benchmarks.evaluation_engines [--events 1000000] [--engine ray] [--workers 1 16]
        [--database-url URL] [--without-engine] [--lose-a-node CORES]

The log is written in bulk into an experiment of a new SQLite database, or of the one that is named. The
candidates do not learn: the uniform policy, one arm, and three snapshots of linear learners before their
first round. Every number of workers has an engine of its own. It is started before the clock is: start-up is
stated apart. The command's own CPU is the part that more workers do not speed up. `--without-engine`
evaluates in this process, too. `--lose-a-node` evaluates on two Ray nodes with so many cores each, of which
one is killed after a third of the pieces. All results must be equal byte for byte.
"""

import argparse
import asyncio
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from ray.cluster_utils import Cluster

from benchmarks.long_log import linear_spec, write_log
from model.learner import Learner
from model.state.snapshot import to_bytes
from service.evaluating.candidates import parsed
from service.evaluating.pieces.evaluation import (
    DatabasePlace,
    RangePiece,
    evaluated_in_pieces,
    judged_range,
)
from service.evaluating.plan import EvaluationPlan
from service.evaluating.request import EvaluationRequest
from service.evaluating.running import Progress, evaluated_here, ignore
from service.experiment_spec import ExperimentSpec
from service.parallel.engine import Engine
from service.parallel.opening import EngineOptions, opened_engine
from service.storage.database import Database, DatabaseOptions
from service.storage.drivers import migrate
from service.storage.events.log import EventLog

OPTIONS = DatabaseOptions(timeout_seconds=60.0, lock_timeout_seconds=50.0)
CANDIDATES = ("uniform", "arm:arm-0", "version:1", "version:2", "version:3")
MOMENT = 0.5  # seconds that a piece of the start-up takes, so that others get one, too


async def prepared(url: str, events: int) -> EvaluationPlan:
    """The log, and the evaluation of five candidates on it."""
    async with Database.opened(url, OPTIONS) as database:
        await migrate.upgrade(database)
        experiment = await write_log(database, linear_spec("long"), events)
    spec = ExperimentSpec.of(experiment)
    blobs = {
        version: to_bytes(Learner(spec.bandit_config(), seed=version), version, with_contexts=False)
        for version in (1, 2, 3)
    }
    wanted = tuple(map(parsed, CANDIDATES))
    request = EvaluationRequest(experiment=experiment.name, candidates=wanted)
    return EvaluationPlan(experiment, request, blobs, bound=None)


def first_piece(piece: RangePiece) -> int:
    """A piece that loads what the others need; the worker that did it."""
    judged_range(piece)
    time.sleep(MOMENT)
    return os.getpid()


def start(engine: Engine, piece: RangePiece) -> None:
    """Return when every worker has loaded what it needs."""
    ready: set[int] = set()
    while len(ready) < engine.workers:
        ready |= set(engine.in_order(first_piece, [piece] * 2 * engine.workers))


def timed(
    plan: EvaluationPlan, place: DatabasePlace, where: EngineOptions, note: Progress = ignore
) -> tuple[float, str]:
    """Seconds of the evaluation, and the digest of its result; prints both and the start-up."""
    started, noted = time.perf_counter(), []

    async def noting(done: int, total: int) -> None:
        noted.append(time.perf_counter())
        await note(done, total)

    with opened_engine(where) as engine:
        if engine is not None:
            start(engine, RangePiece(place, plan, 0, 100))
        begun, cpu = time.perf_counter(), time.process_time()
        result = asyncio.run(_evaluated(plan, place, engine, noting))
        taken, cpu = time.perf_counter() - begun, time.process_time() - cpu
    digest = hashlib.sha256(json.dumps(result).encode()).hexdigest()[:16]
    print(
        f"{where.name}, workers {where.workers or 'of the cluster'}: {taken:.1f} s after {begun - started:.1f} s of"
        f" start-up, the command's own CPU {cpu:.1f} s, {result['rounds']:,} rounds, result {digest}",
        flush=True,
    )
    if noted:
        first, last = noted[0] - begun, noted[-1] - begun
        print(
            f"    the first of {len(noted)} pieces after {first:.1f} s, the last after {last:.1f} s"
        )
    return taken, digest


async def _evaluated(
    plan: EvaluationPlan, place: DatabasePlace, engine: Engine | None, note: Progress
) -> dict[str, Any]:
    if engine is not None:
        return await evaluated_in_pieces(plan, place, engine, note)
    async with Database.opened(*place) as database:
        return await evaluated_here(plan, EventLog(database))


def with_a_lost_node(plan: EvaluationPlan, place: DatabasePlace, cores: int) -> str:
    """The digest of the result of two Ray nodes, of which one is killed after a third of the pieces."""
    head = {"num_cpus": 0, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        cluster.add_node(num_cpus=cores)
        lost = cluster.add_node(num_cpus=cores)
        is_lost = False

        async def lose(done: int, total: int) -> None:
            nonlocal is_lost
            if not is_lost and 3 * done >= total:
                is_lost = True
                await asyncio.to_thread(cluster.remove_node, lost, allow_graceful=False)
                print(f"one of two nodes was killed after {done:,} of {total:,} rows", flush=True)

        digest = timed(plan, place, EngineOptions("ray", address=cluster.address), lose)[1]
        assert is_lost, "no node was lost"
        return digest
    finally:
        cluster.shutdown()


def main() -> None:
    """Print the seconds for each number of workers, and the speed-up over the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=("process", "ray"), default="ray")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--database-url")
    parser.add_argument("--without-engine", action="store_true")
    parser.add_argument("--lose-a-node", type=int, metavar="CORES")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.database_url or f"sqlite:///{Path(folder) / 'log.db'}"
        plan = asyncio.run(prepared(url, given.events))
        place = DatabasePlace(url, OPTIONS)
        found = [timed(plan, place, EngineOptions(given.engine, each)) for each in given.workers]
        digests = {digest for _, digest in found}
        if given.without_engine:
            digests.add(timed(plan, place, EngineOptions())[1])
        if given.lose_a_node is not None:
            digests.add(with_a_lost_node(plan, place, given.lose_a_node))
    assert len(digests) == 1, "the results differ"
    for workers, (taken, _) in zip(given.workers[1:], found[1:], strict=True):
        print(f"{workers} workers ÷ {given.workers[0]}: {found[0][0] / taken:.2f} times as fast")


if __name__ == "__main__":
    main()
