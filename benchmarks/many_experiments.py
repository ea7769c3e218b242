"""What idle experiments cost, and whether any of them still learns at once.

`python -m benchmarks.many_experiments [--database sqlite] [--idle 2000]`, or `--database postgres --idle 10000`:
a service as it would run on one machine. One experiment is asked all the time; beside it are no others
or many idle ones, in turns, so that both are measured in one run. Then: the CPU of all processes while
nothing happens, the time until a reward in any of the idle ones is folded, the time until all of
`--active` have trained an encoder, and the time of a restart.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from benchmarks.serving_servers import cpu_seconds
from loadtest.service_under_test import migrated, trainer_process
from service.records import Phase, Status, uuid7
from service.storage.database import Database
from service.storage.tables import experiments
from tests.support.processes.servers import (
    DURABLE_SETTINGS,
    PostgresServer,
    RedisServer,
    running_server,
)
from tests.support.processes.service import ServiceProcess

SIZE, ARMS, EPISODE = 16, ["a", "b", "c"], 16
DECLARED: dict[str, Any] = {
    "arms": ARMS,
    "context": {"kind": "shared", "shape": [SIZE]},
    "method": "daband",
    "seed": 7,
    "config": {"episode_length": EPISODE, "gate_margin": 1.0, "gate_rank": 1.0},
}
SPEC = json.dumps({**DECLARED, "fallback_arm": None}, separators=(",", ":"))
QUOTAS = {"MAX_EXPERIMENTS": "100000", "MAX_TENANT_EXPERIMENTS": "100000"}
PATIENCE_SECONDS = 900.0
IDLE_SECONDS = 20.0
ROWS_AT_ONCE = 500


@dataclass(frozen=True)
class Machine:
    """The service on one machine, by its processes."""

    url: str
    database_url: str
    service: list[int]
    database: list[int]
    restart: Callable[[], float]


@contextmanager
def running(kind: str) -> Iterator[Machine]:
    """A machine with a database of this kind."""
    with tempfile.TemporaryDirectory(prefix="daband-many-") as name, ExitStack() as stack:
        folder = Path(name)
        make = _on_sqlite if kind == "sqlite" else _on_postgres
        yield make(stack, folder)


def _on_sqlite(stack: ExitStack, folder: Path) -> Machine:
    path = folder / "data" / "daband.db"
    first = stack.enter_context(ServiceProcess(folder, **QUOTAS))

    def restart() -> float:
        first.__exit__()
        (folder / "again").mkdir()
        began = time.monotonic()
        url = {"DATABASE_URL": f"sqlite:///{path}"}
        again = stack.enter_context(ServiceProcess(folder / "again", **QUOTAS, **url))
        return _ready(again.url, began)

    return Machine(first.url, f"sqlite:///{path}", [first.process_id], [], restart)


def _on_postgres(stack: ExitStack, folder: Path) -> Machine:
    postgres = stack.enter_context(running_server(PostgresServer(**DURABLE_SETTINGS)))
    redis = stack.enter_context(running_server(RedisServer()))
    asyncio.run(migrated(postgres.url()))
    urls = {"DATABASE_URL": postgres.url(), "REDIS_URL": redis.url, **QUOTAS}
    service = stack.enter_context(ServiceProcess(folder, "--no-trainer", **urls))
    trainer = stack.enter_context(trainer_process(folder, urls))

    def restart() -> float:
        service.__exit__()
        trainer.kill()
        (folder / "again").mkdir()
        began = time.monotonic()
        stack.enter_context(trainer_process(folder / "again", urls))
        again = stack.enter_context(ServiceProcess(folder / "again", "--no-trainer", **urls))
        return _ready(again.url, began)

    own = [service.process_id, trainer.pid]
    return Machine(service.url, postgres.url(), own, [postgres.process_id], restart)


def _ready(url: str, began: float) -> float:
    while not httpx.get(f"{url}/readyz").is_success:
        time.sleep(0.02)
    return time.monotonic() - began


async def set_idle(database_url: str, names: list[str]) -> None:
    """Replace the idle experiments by those of these names."""
    database = await Database.open(database_url)
    is_idle = experiments.c.name.like("idle-%")
    await database.write(lambda c: c.execute(sa.delete(experiments).where(is_idle)), 60.0)
    now = await database.read(lambda c: c.scalar(sa.select(sa.func.max(experiments.c.created_at))))
    for start in range(0, len(names), ROWS_AT_ONCE):
        rows = [
            {
                "experiment_id": uuid7(),
                "name": name,
                "spec": SPEC,
                "phase": Phase.ZERO_SHOT.value,
                "status": Status.ACTIVE.value,
                "created_at": now,
            }
            for name in names[start : start + ROWS_AT_ONCE]
        ]
        await database.write(partial(_insert, rows), 60.0)
    await database.close()


async def _insert(rows: list[dict[str, Any]], connection: AsyncConnection) -> None:
    await connection.execute(sa.insert(experiments), rows)


def select(client: httpx.Client, name: str, rounds: int = 1) -> list[str]:
    """Decide rounds; the decisions' ids."""
    source = {"context": [random.gauss(0, 1) for _ in range(SIZE)]}
    body = {"experiment": name, "rounds": [{"source": source, "target": source}] * rounds}
    answer = client.post("/select/batch", json=body).raise_for_status().json()
    return [each["source"]["decision_id"] for each in answer["rounds"]]


def reward(client: httpx.Client, ids: list[str]) -> None:
    """Report a reward for each decision."""
    sent = [{"decision_id": each, "reward": float(random.random() < 0.5)} for each in ids]
    client.post("/reward/batch", json={"rewards": sent}).raise_for_status()


def latencies(client: httpx.Client, count: int) -> list[float]:
    """Milliseconds of selects of the one experiment that is asked."""
    body = {"experiment": "live", "source": {"context": [0.1] * SIZE}}
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        client.post("/select", json=body).raise_for_status()
        taken.append(1000 * (time.perf_counter() - began))
    return taken


def folded_after(client: httpx.Client, name: str) -> float:
    """Seconds from a reward to the state that knows it."""
    ids = select(client, name)
    began = time.monotonic()
    reward(client, ids)
    while not client.get(f"/experiments/{name}/state").json()["counts"]["folded_rewards"]:
        time.sleep(0.01)
    return time.monotonic() - began


def all_trained_after(client: httpx.Client, names: list[str]) -> float:
    """Seconds until an encoder of each was trained."""
    began = time.monotonic()
    for name in names:
        reward(client, select(client, name, EPISODE))
    waiting = set(names)
    while waiting and time.monotonic() - began < PATIENCE_SECONDS:
        time.sleep(0.5)
        waiting -= {
            name
            for name in waiting
            if client.get(f"/experiments/{name}/state").json().get("last_training")
        }
    assert not waiting, f"{len(waiting)} were not trained in {PATIENCE_SECONDS:.0f} s"
    return time.monotonic() - began


def compare_latencies(
    machine: Machine, client: httpx.Client, names: list[str], options: argparse.Namespace
) -> Iterator[str]:
    """Selects of one experiment alone and with the idle ones, alternately."""
    few: list[float] = []
    many: list[float] = []
    latencies(client, 200)
    for _ in range(options.rounds):
        asyncio.run(set_idle(machine.database_url, []))
        few += latencies(client, options.selects)
        asyncio.run(set_idle(machine.database_url, names))
        many += latencies(client, options.selects)
    for label, values in (("1", few), (f"{len(names) + 1}", many)):
        p50, p99 = np.quantile(values, [0.5, 0.99])
        yield f"select, {label:>6} experiments: p50 {p50:.2f}  p99 {p99:.2f} ms"
    yield f"p99 ratio {np.quantile(many, 0.99) / np.quantile(few, 0.99):.2f}"


def idle_cpu(machine: Machine) -> str:
    """What the processes use while nothing happens."""
    time.sleep(5.0)  # what was decided last is folded
    roots = (machine.service, machine.database)
    before = [cpu_seconds(*each) for each in roots]
    time.sleep(IDLE_SECONDS)
    shares = [
        100 * (cpu_seconds(*each) - earlier) / IDLE_SECONDS
        for each, earlier in zip(roots, before, strict=True)
    ]
    return f"CPU while idle: service {shares[0]:.1f} %, database {shares[1]:.1f} % of a core"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--idle", type=int, default=2000)
    parser.add_argument("--active", type=int, default=200)
    parser.add_argument("--selects", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    names = [f"idle-{number}" for number in range(options.idle)]
    print(f"{options.database}, {options.idle} idle experiments")
    with running(options.database) as machine:
        client = httpx.Client(base_url=machine.url, timeout=60.0)
        client.post("/experiments", json={"name": "live", **DECLARED}).raise_for_status()
        for line in compare_latencies(machine, client, names, options):
            print(f"  {line}")
        print(f"  {idle_cpu(machine)}")
        chosen = random.sample(names, 20)
        longest = max(folded_after(client, name) for name in chosen)
        print(f"  reward to folded, 20 idle ones: longest {longest:.2f} s")
        active = random.sample(sorted(set(names) - set(chosen)), options.active)
        seconds = all_trained_after(client, active)
        print(f"  {options.active} active ones all trained after {seconds:.0f} s")
        print(f"  restart: ready after {machine.restart():.1f} s")


if __name__ == "__main__":
    main()
