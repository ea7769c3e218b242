"""How durable selects scale with serving processes: `python -m benchmarks.serving_workers [--most 2]`.

One Postgres, one Redis and the load share the machine with the serving processes, and nothing is pinned: with two
cores in all, the second process finds no core of its own. The CPU time a decision says what it would cost elsewhere.
"""

import argparse
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.serving import Case, binary, declare
from benchmarks.serving_servers import postgres, redis, service


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=2, help="processes")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    print("| processes | decisions/s | times one process | CPU µs a decision |\n|---|---|---|---|")
    first = 0.0
    for workers in range(1, options.most + 1):
        row = _measured(workers, options.seconds, options.rounds)
        rate = float(row["decisions_per_second"])
        first = first or rate
        print(f"| {workers} | {rate:.0f} | {rate / first:.2f} | {row['cpu_us']:.0f} |")


def _measured(workers: int, seconds: float, rounds: int) -> dict[str, float]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = {
            "DATABASE_URL": stack.enter_context(postgres()),
            "REDIS_URL": stack.enter_context(redis()),
            "WORKERS": str(workers),
        }
        server = stack.enter_context(service(folder / "served", is_pinned=False, **settings))
        declare(server, "durable")
        case = Case("select", server, lambda: [binary("durable")])
        for _ in range(rounds):
            case.measure(seconds, folder)
        return case.row()


if __name__ == "__main__":
    main()
