"""How an evaluation scales with workers: 5 candidates on one log, in processes or on Ray.

    python -m benchmarks.evaluation_engines [--events 1000000] [--engine ray] [--workers 1 16]
        [--database-url URL]

The log is written in bulk into an experiment of a new SQLite database, or of the one that is named. The
candidates do not learn: the uniform policy, one arm, and three snapshots of linear learners before their
first round. Every number of workers has an engine of its own. It is started before the clock is: start-up is
stated apart. The command's own CPU is the part that more workers do not speed up. The results must be equal
byte for byte.
"""

import argparse
import asyncio
import hashlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.long_log import linear_spec, write_log
from model.learner import Learner
from model.state.snapshot import to_bytes
from service.evaluating.candidates import parsed
from service.evaluating.pieces.evaluation import DatabasePlace, evaluated_in_pieces
from service.evaluating.plan import EvaluationPlan
from service.evaluating.request import EvaluationRequest
from service.evaluating.running import evaluated_here
from service.experiment_spec import ExperimentSpec
from service.parallel.engine import Engine
from service.parallel.opening import EngineOptions, opened_engine
from service.storage.database import Database, DatabaseOptions
from service.storage.drivers import migrate
from service.storage.events.log import EventLog

OPTIONS = DatabaseOptions(timeout_seconds=60.0, lock_timeout_seconds=50.0)
CANDIDATES = ("uniform", "arm:arm-0", "version:1", "version:2", "version:3")
MOMENT = 0.5  # seconds that a piece of the start-up takes, so that each worker gets one


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


def moment(number: int) -> int:
    """A piece that loads what the others need."""
    time.sleep(MOMENT)
    return number


def timed(plan: EvaluationPlan, place: DatabasePlace, where: EngineOptions) -> tuple[float, str]:
    """Seconds of the evaluation, and the digest of its result; prints both and the start-up."""
    started = time.perf_counter()
    with opened_engine(where) as engine:
        if engine is not None:
            list(engine.in_order(moment, range(2 * engine.workers)))
        begun, cpu = time.perf_counter(), time.process_time()
        result = asyncio.run(_evaluated(plan, place, engine))
        taken, cpu = time.perf_counter() - begun, time.process_time() - cpu
    digest = hashlib.sha256(json.dumps(result).encode()).hexdigest()[:16]
    print(
        f"{where.name}, workers {where.workers}: {taken:.1f} s after {begun - started:.1f} s of"
        f" start-up, the command's own CPU {cpu:.1f} s, {result['rounds']:,} rounds, result {digest}",
        flush=True,
    )
    return taken, digest


async def _evaluated(
    plan: EvaluationPlan, place: DatabasePlace, engine: Engine | None
) -> dict[str, Any]:
    if engine is not None:
        return await evaluated_in_pieces(plan, place, engine)
    async with Database.opened(*place) as database:
        return await evaluated_here(plan, EventLog(database))


def main() -> None:
    """Print the seconds for each number of workers, and the speed-up over the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=("process", "ray"), default="ray")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--database-url")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = given.database_url or f"sqlite:///{Path(folder) / 'log.db'}"
        plan = asyncio.run(prepared(url, given.events))
        place = DatabasePlace(url, OPTIONS)
        found = [timed(plan, place, EngineOptions(given.engine, each)) for each in given.workers]
    assert len({digest for _, digest in found}) == 1, "the results differ"
    for workers, (taken, _) in zip(given.workers[1:], found[1:], strict=True):
        print(f"{workers} workers ÷ {given.workers[0]}: {found[0][0] / taken:.2f} times as fast")


if __name__ == "__main__":
    main()
