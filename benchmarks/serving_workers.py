"""How durable selects scale with serving processes and experiments, and what binds.

`python -m benchmarks.serving_workers [--processes 1 2 4 8] [--experiments 1 8 64] [--json FILE]`: one
Postgres, one Redis and the load share the machine with the serving processes, and nothing is pinned. On
two cores the second process finds no core of its own; the CPU a decision says what it would cost elsewhere.
While the load runs, Postgres is asked again and again what its busy backends wait for.
"""

import argparse
import asyncio
import json
import os
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from benchmarks.load import command, packed
from benchmarks.serving import CALLERS, binary, declare
from benchmarks.serving_servers import Server, cpu_seconds, postgres, redis, service
from tests.support.processes.servers import PostgresServer

BUSY = 0.9  # of a core, or of all: no more is to be had
ASKED_EVERY = 0.02
WORKING = "CPU"  # a backend that waits for nothing
WAITS = """SELECT coalesce(wait_event_type || ':' || wait_event, $1) FROM pg_stat_activity
WHERE state = 'active' AND backend_type = 'client backend' AND pid <> pg_backend_pid()"""


@dataclass(frozen=True, slots=True)
class Row:
    """What so many processes did for so many experiments; CPU in cores."""

    processes: int
    experiments: int
    decisions_per_second: float
    p99_ms: float
    service: float
    postgres: float
    load: float
    waits: dict[str, float]  # shares of what busy backends wait for, the largest first

    def micros(self, cores: float) -> float:
        """CPU of a decision."""
        return 1e6 * cores / self.decisions_per_second

    def binds(self, generators: int, cores: int) -> str:
        """What there is no more of."""
        if self.service + self.postgres + self.load >= BUSY * cores:
            return "the machine's cores"
        if self.load >= BUSY * generators:
            return "the load generators"
        if self.service >= BUSY * self.processes:
            return "the serving processes"
        name, share = next(iter(self.waits.items()), (WORKING, 0.0))
        return f"Postgres: {name} ({share:.0%})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, a line as soon as it is measured."""
    options = _options(arguments)
    rows = []
    print(
        "| processes | experiments | decisions/s | p99, ms | service, µs | Postgres, µs | "
        "service, Postgres, load: cores | binds |\n|---|---|---|---|---|---|---|---|"
    )
    for row in measured(options):
        print(_line(row, options.generators), flush=True)
        rows.append(asdict(row))
    if options.json is not None:
        options.json.write_text(
            json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1) + "\n"
        )


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--experiments", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load")
    parser.add_argument(
        "--generators",
        type=int,
        default=max(1, (os.cpu_count() or 1) // 4),
        help="processes that make the load",
    )
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    return parser.parse_args(arguments)


def measured(options: argparse.Namespace) -> Iterator[Row]:
    """A row for each number of processes and experiments."""
    for processes, experiments in product(options.processes, options.experiments):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            database = stack.enter_context(postgres(max_connections="300"))
            urls = {
                "DATABASE_URL": database.url(),
                "REDIS_URL": stack.enter_context(redis()),
                "WORKERS": str(processes),
            }
            server = stack.enter_context(service(folder / "served", is_pinned=False, **urls))
            names = [f"experiment-{number}" for number in range(experiments)]
            for name in names:
                declare(server, "durable", name)
            requests = folder / "requests"
            requests.write_bytes(packed([binary(name) for name in names]))
            callers = CALLERS * processes
            _loads(server, requests, options.generators, callers, 1.0)  # policies are loaded
            yield _row(server, database, requests, callers, options, len(names))


def _row(
    server: Server,
    database: PostgresServer,
    requests: Path,
    callers: int,
    options: argparse.Namespace,
    experiments: int,
) -> Row:
    roots = (server.process_id, database.process_id)
    before = [cpu_seconds(each) for each in roots]
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(asyncio.run, _waits(database.url(), options.seconds))
        loads = _loads(server, requests, options.generators, callers, options.seconds)
    seconds = max(each["seconds"] for each in loads)
    used = [(cpu_seconds(each) - b) / seconds for each, b in zip(roots, before, strict=True)]
    answered = sum(sum(each["statuses"].values()) for each in loads)
    return Row(
        processes=callers // CALLERS,
        experiments=experiments,
        decisions_per_second=answered / seconds,
        p99_ms=float(np.percentile([ms for each in loads for ms in each["latencies_ms"]], 99)),
        service=used[0],
        postgres=used[1],
        load=sum(each["cpu_seconds"] for each in loads) / seconds,
        waits=waits.result(),
    )


def _loads(
    server: Server, requests: Path, generators: int, callers: int, seconds: float
) -> list[dict[str, Any]]:
    """What came of the load of several processes at once."""
    share = max(1, callers // generators)
    line = [*command(server.port, requests, share, seconds), "--again"]
    running = [subprocess.Popen(line, stdout=subprocess.PIPE) for _ in range(generators)]  # noqa: S603
    loads: list[dict[str, Any]] = [json.loads(each.communicate()[0]) for each in running]
    for load in loads:
        assert set(load["statuses"]) == {"200"}, load["statuses"]
    return loads


async def _waits(url: str, seconds: float) -> dict[str, float]:
    """Shares of what busy backends wait for, for so long."""
    seen: Counter[str] = Counter()
    connection = await asyncpg.connect(url)
    end = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < end:
        seen.update(found[0] for found in await connection.fetch(WAITS, WORKING))
        await asyncio.sleep(ASKED_EVERY)
    await connection.close()
    return {name: count / seen.total() for name, count in seen.most_common()}


def _line(row: Row, generators: int) -> str:
    return (
        f"| {row.processes} | {row.experiments} | {row.decisions_per_second:,.0f} | {row.p99_ms:.0f} "
        f"| {row.micros(row.service):.0f} | {row.micros(row.postgres):.0f} "
        f"| {row.service:.1f}, {row.postgres:.1f}, {row.load:.1f} "
        f"| {row.binds(generators, os.cpu_count() or 1)} |"
    )


if __name__ == "__main__":
    main()
