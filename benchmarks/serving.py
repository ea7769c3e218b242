"""The cost of a request relative to a minimal server, as ratios measured in one run.

`python -m benchmarks.serving [--json FILE] [--quick]`: servers on one core, the load on the other, all
cases interleaved round by round; medians. Throughput is what a caller sees; the CPU time of the serving
process a request says the same with less noise where others use the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.load import command, http_request, packed
from benchmarks.serving_servers import OTHER_CORE, Server, echo, postgres, service

ARMS, SIZE, ROUNDS, CALLERS = 10, 32, 256, 64
ECHO, PYDANTIC = "ASGI echo, binary", "FastAPI + pydantic echo, JSON"
CONTEXT = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
JSON, BYTES = "application/json", "application/octet-stream"
# What must hold of the medians: the name, the case, what it is divided by, and the least ratio.
GOALS = (
    ("relaxed binary select over the ASGI echo", "select, binary, relaxed, postgres", ECHO, 0.4),
    ("durable binary select over the ASGI echo", "select, binary, postgres", ECHO, 0.28),
    (
        "relaxed JSON select over the pydantic echo",
        "select, JSON, relaxed, postgres",
        PYDANTIC,
        2.0,
    ),
    ("durable JSON select over the pydantic echo", "select, JSON, postgres", PYDANTIC, 1.5),
    (
        "decisions of a batch over single calls, one caller",
        "select/batch, one caller, postgres",
        "select, JSON, one caller, postgres",
        12.0,
    ),
)


@dataclass(slots=True)
class Case:
    """A request that a server is loaded with, and what was measured."""

    name: str
    server: Server
    requests: Callable[[], list[bytes]]
    callers: int = CALLERS
    decisions: int = 1
    per_second: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    latencies_ms: list[float] = field(default_factory=list)

    def measure(self, seconds: float, folder: Path) -> None:
        """Load the server once more."""
        path = folder / "requests"
        path.write_bytes(packed(self.requests()))
        before = self.server.cpu_seconds()
        load = _load(self.server.port, path, self.callers, seconds)
        used = self.server.cpu_seconds() - before
        answered = sum(load["statuses"].values())
        assert set(load["statuses"]) <= {"200", "201"}, (self.name, load["statuses"])
        self.per_second.append(answered * self.decisions / load["seconds"])
        self.cpu_us.append(1e6 * used / (answered * self.decisions))
        self.latencies_ms += load["latencies_ms"]

    def row(self) -> dict[str, Any]:
        """The figures, a decision; an echo decides nothing and counts requests."""
        p50, p99 = np.percentile(self.latencies_ms, (50, 99))
        return {
            "case": self.name,
            "callers": self.callers,
            "decisions_per_second": round(statistics.median(self.per_second), 1),
            "cpu_us": round(statistics.median(self.cpu_us), 2),
            "p50_ms": round(float(p50), 3),
            "p99_ms": round(float(p99), 3),
        }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    options = parsed(argparse.ArgumentParser(description=__doc__), arguments)
    figures = measured(options.seconds, options.rounds, has_postgres=not options.quick)
    print(table(figures))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def parsed(parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options with those that say how long to measure and where the figures go."""
    parser.add_argument("--seconds", type=float, default=2.0, help="of load, each time")
    parser.add_argument("--rounds", type=int, default=5, help="times that each case is loaded")
    parser.add_argument("--quick", action="store_true", help="one short round, no Postgres")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    if options.quick:
        options.seconds, options.rounds = 0.2, 1
    return options


def measured(seconds: float, rounds: int, *, has_postgres: bool = True) -> dict[str, Any]:
    """The figures of all cases, and of each goal that can be judged by them."""
    with tempfile.TemporaryDirectory() as name, _cases(Path(name), has_postgres) as cases:
        for _ in range(rounds):
            for case in cases:
                case.measure(seconds, Path(name))
    found = {case.name: case for case in cases}
    return {
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()[0]},
        "cases": [case.row() for case in cases],
        "ratios": [
            {"goal": goal, "least": least, **ratio(found[case], found[base])}
            for goal, case, base, least in GOALS
            if case in found and base in found
        ],
    }


def table(figures: dict[str, Any]) -> str:
    """The figures as markdown."""
    lines = [
        *case_rows(figures["cases"]),
        "",
        "| ratio | goal | throughput | CPU |",
        "|---|---|---|---|",
        *(
            f"| {each['goal']} | ≥ {each['least']} | {each['throughput']} | {each['cpu']} |"
            for each in figures["ratios"]
        ),
    ]
    return "\n".join(lines)


def case_rows(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The cases' figures as the lines of a markdown table."""
    return [
        "| case | callers | decisions/s | server µs | p50 ms | p99 ms |",
        "|---|---|---|---|---|---|",
        *("| {} |".format(" | ".join(str(each) for each in row.values())) for row in rows),
    ]


def ratio(case: Case, base: Case) -> dict[str, float]:
    """Medians of the ratios within a round."""
    throughput = [ours / echo for ours, echo in zip(case.per_second, base.per_second, strict=True)]
    cpu = [echo / ours for ours, echo in zip(case.cpu_us, base.cpu_us, strict=True)]
    return {
        "throughput": round(statistics.median(throughput), 3),
        "cpu": round(statistics.median(cpu), 3),
    }


@contextmanager
def _cases(folder: Path, has_postgres: bool) -> Iterator[list[Case]]:
    with ExitStack() as stack:
        plain, pydantic = (stack.enter_context(echo(kind)) for kind in ("asgi", "fastapi"))
        cases = [
            Case(ECHO, plain, lambda: [binary("durable")]),
            Case(PYDANTIC, pydantic, lambda: [json_select("durable")]),
        ]
        embedded = stack.enter_context(service(folder / "sqlite"))
        cases += _service_cases(embedded, "sqlite")
        if has_postgres:
            url = stack.enter_context(postgres()).url()
            served = stack.enter_context(service(folder / "postgres", DATABASE_URL=url))
            cases += _service_cases(served, "postgres")
        yield cases


def _service_cases(server: Server, database: str) -> list[Case]:
    for durability in ("durable", "relaxed"):
        declare(server, durability)
    return [
        Case(f"select, binary, {database}", server, lambda: [binary("durable")]),
        Case(f"select, binary, relaxed, {database}", server, lambda: [binary("relaxed")]),
        Case(f"select, JSON, {database}", server, lambda: [json_select("durable")]),
        Case(f"select, JSON, relaxed, {database}", server, lambda: [json_select("relaxed")]),
        Case(f"select, JSON, one caller, {database}", server, lambda: [json_select("durable")], 1),
        Case(
            f"select/batch, one caller, {database}", server, lambda: [_batch("durable")], 1, ROUNDS
        ),
        Case(f"reward, {database}", server, lambda: rewards(server, 8 * ROUNDS, 1)),
        Case(
            f"reward/batch, one caller, {database}",
            server,
            lambda: rewards(server, 16 * ROUNDS, ROUNDS),
            1,
            ROUNDS,
        ),
    ]


def declare(server: Server, durability: str, name: str | None = None) -> None:
    """Create an experiment; without a name it is named by its durability."""
    body = {
        "name": name or durability,
        "arms": [f"arm-{number}" for number in range(ARMS)],
        "context": {"kind": "shared", "shape": [SIZE]},
        "method": "linucb",
        "durability": durability,
    }
    answer = httpx.post(f"{server.url}/experiments", json=body, timeout=60)
    assert answer.status_code == 201, answer.text


def _round() -> dict[str, Any]:
    return {"source": {"context": CONTEXT.tolist()}}


def binary(experiment: str) -> bytes:
    """A select with a binary body."""
    return http_request(f"/select?experiment={experiment}", CONTEXT.tobytes(), BYTES)


def json_select(experiment: str) -> bytes:
    """A select with a JSON body."""
    body = {"experiment": experiment, **_round()}
    return http_request("/select", json.dumps(body).encode(), JSON)


def _batch(experiment: str, count: int = ROUNDS) -> bytes:
    body = {"experiment": experiment, "rounds": [_round()] * count}
    return http_request("/select/batch", json.dumps(body).encode(), JSON)


def rewards(server: Server, count: int, a_request: int) -> list[bytes]:
    """Requests that reward new decisions, each once."""
    body = {"experiment": "durable", "rounds": [_round()] * ROUNDS}
    wanted: list[dict[str, Any]] = []
    while len(wanted) < count:
        answer = httpx.post(f"{server.url}/select/batch", json=body, timeout=60).json()
        ids = [each["source"]["decision_id"] for each in answer["rounds"]]
        wanted += [{"decision_id": each, "reward": 1.0} for each in ids]
    if a_request == 1:
        return [http_request("/reward", json.dumps(each).encode(), JSON) for each in wanted]
    some = [wanted[at : at + a_request] for at in range(0, len(wanted), a_request)]
    return [
        http_request("/reward/batch", json.dumps({"rewards": each}).encode(), JSON) for each in some
    ]


def _load(port: int, path: Path, callers: int, seconds: float) -> dict[str, Any]:
    pinned = ["taskset", "-c", str(OTHER_CORE)] if (os.cpu_count() or 1) > 1 else []
    whole = [*pinned, *command(port, path, callers, seconds)]
    done = subprocess.run(whole, check=True, capture_output=True)  # noqa: S603
    found: dict[str, Any] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
