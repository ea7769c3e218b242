"""What a long log costs: selects, restart and replay with 10^3 and with 10^6 events stored.

    python -m benchmarks.log_scale [--events 1000000] [--database-url URL] [--json FILE] [--quick]

Logs are written in bulk into new experiments of one database (SQLite in a temporary folder, or the
Postgres that is named). Selects go through the whole app in this process, durably, on both
experiments in turn; their cost is the median CPU time of the process. Restart is the time from
nothing to a policy that answers, from the newest snapshot. Replay is `daband replay`'s fold of the
whole log. Selecting in the model alone is timed for K = 10 up to 10^4.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import numpy as np

from benchmarks.lab import use_one_thread
from benchmarks.long_log import linear_spec, write_log, write_snapshot
from model.config import system_config
from model.learner import Learner
from model.rounds import Domain
from service.experiment_spec import ExperimentSpec
from service.learning.replay import replay
from service.learning.restore import LearnerStore
from service.storage.candidates import Candidates
from service.storage.database import Database, DatabaseOptions
from service.storage.drivers import migrate
from service.storage.events.log import EventLog
from service.storage.experiments import Experiments
from service.storage.snapshots import Snapshots
from tests.support.api import running_api

SHORT = 1_000
SIZE = 32
ARM_COUNTS = (10, 100, 1_000, 10_000)
OPTIONS = DatabaseOptions(timeout_seconds=60.0, lock_timeout_seconds=50.0)
Figures = dict[str, float]


async def measure(url: str, events: int, selects: int) -> Figures:
    """All figures of one database by name."""
    database = await Database.open(url, OPTIONS)
    try:
        await migrate.upgrade(database)
        started = time.perf_counter()
        for name, count in (("short", SHORT), ("long", events)):
            spec = linear_spec(name, episode_length=10**9)
            experiment = await write_log(database, spec, count)
            await write_snapshot(database, experiment)
        figures = {"seconds to write and snapshot the log": time.perf_counter() - started}
        figures |= await _replayed(database, experiment.name)
        figures |= await _restarted(database, experiment.name)
    finally:
        await database.close()
    return figures | await _selected(url, selects)


async def _replayed(database: Database, name: str) -> Figures:
    stores = EventLog(database), Snapshots(database), Candidates(database)
    experiment = await Experiments(database).get(name)
    started, cpu = time.perf_counter(), time.process_time()
    report = await replay(experiment, *stores)
    assert report.is_equal, "the replay differs from the stored snapshot"
    wall, busy = time.perf_counter() - started, time.process_time() - cpu
    return {
        "replay, events a second of this process's CPU": report.offset / busy,
        "replay, events a second": report.offset / wall,
    }


async def _restarted(database: Database, name: str) -> Figures:
    """A new process loads the newest snapshot with its contexts and can select."""
    experiment = await Experiments(database).get(name)
    started = time.perf_counter()
    store = LearnerStore(EventLog(database), Snapshots(database))
    learner = (await store.load(experiment, ExperimentSpec.of(experiment))).learner
    context = np.ones((1, SIZE), dtype=np.float32)
    learner.policy().select_many(context, Domain.SOURCE, ["first"])
    assert learner.offset == experiment.head_offset
    return {"restart of the trainer from a snapshot, seconds": time.perf_counter() - started}


async def _selected(url: str, selects: int) -> Figures:
    """Durable selects through the app, on the short and the long log in turn."""
    started = time.perf_counter()
    async with running_app(url) as http:
        await select_once(http, "long", 0)
        figures = {
            "start of the app up to its first select, seconds": time.perf_counter() - started
        }
        costs: dict[str, list[float]] = {"short": [], "long": []}
        for number in range(1, selects + 1):
            for name, taken in costs.items():
                cpu = time.process_time()
                await select_once(http, name, number)
                taken.append(time.process_time() - cpu)
    short, long = (statistics.median(taken) for taken in costs.values())
    return figures | {
        f"select with {SHORT:,} events logged, CPU µs": 1e6 * short,
        "select with all events logged, CPU µs": 1e6 * long,
        "select: long ÷ short log": long / short,
    }


@asynccontextmanager
async def running_app(url: str, **settings: object) -> AsyncIterator[httpx.AsyncClient]:
    """The service without its trainer, in this process; nothing polls while it is measured."""
    patient = {"poll_seconds": 3600.0, "storage_timeout_seconds": 60.0}
    async with running_api(url, **(patient | settings)) as api:
        yield api.http


async def select_once(http: httpx.AsyncClient, name: str, number: int) -> None:
    """One durable select through the app."""
    body = {
        "experiment": name,
        "request_id": f"s-{number}",
        "source": {"context": [0.1 * (number % 7)] * SIZE},
    }
    answer = await http.post("/select", json=body)
    assert answer.status_code == 200, answer.text


def by_arms(repeats: int) -> Figures:
    """CPU µs of one decision in the model, and its growth over growth of K."""
    taken = {arms: arm_cost(arms, repeats) for arms in ARM_COUNTS}
    figures = {f"select in the model, K = {arms:,}, CPU µs": 1e6 * t for arms, t in taken.items()}
    growth = (taken[10_000] - taken[10]) / (taken[1_000] - taken[10])
    return figures | {"growth of cost, K = 10,000 ÷ 1,000 (linear: 10)": growth}


def arm_cost(arms: int, repeats: int) -> float:
    """CPU seconds of a decision among `arms` arms, from batches of 16: the best of some repeats."""
    config = system_config("linucb", arm_count=arms, context_shape=(SIZE,))
    policy = Learner(config, seed=1).policy()
    contexts = np.random.default_rng(0).standard_normal((16, SIZE)).astype(np.float32)
    keys = np.zeros(16, dtype=np.uint64)
    times = []
    for _ in range(repeats):
        started = time.thread_time()
        policy.select_many(contexts, Domain.SOURCE, keys)
        times.append(time.thread_time() - started)
    return min(times) / 16


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and optionally write the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--database-url", help="an empty Postgres database; SQLite otherwise")
    parser.add_argument("--quick", action="store_true", help="3,000 events: shape, no figures")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    use_one_thread()
    events, selects = (3_000, 10) if options.quick else (options.events, 400)
    with tempfile.TemporaryDirectory() as folder:
        url = options.database_url or f"sqlite:///{folder}/daband.db"
        figures = asyncio.run(measure(url, events, selects))
    figures |= by_arms(10 if options.quick else 50)
    for name, value in figures.items():
        print(f"{name:<52} {value:>14,.2f}")
    if options.json:
        written = {"events": events, "figures": figures}
        options.json.write_text(json.dumps(written, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
