"""CPU time of durable requests on SQLite, of one caller and of many, compared with another build.

`python -m benchmarks.sqlite_select OTHER`: `OTHER` is a checkout of the build to compare with, for example a
`git worktree` of an earlier commit. Both run on the same core, in turn, round by round; the ratio is the
median over the rounds.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.serving import CALLERS, Case, binary, declare, json_select, rewards
from benchmarks.serving_servers import Server, service
from tests.support.processes.service import ROOT

REWARDS = 1024  # of a round
Requests = Callable[[], list[bytes]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="checkout of the build to compare with")
    parser.add_argument("--seconds", type=float, default=2.0, help="of load, each time")
    parser.add_argument("--rounds", type=int, default=7, help="times that each case is loaded")
    options = parser.parse_args(arguments)
    print("| request | CPU µs here | CPU µs there | here ÷ there |\n|---|---|---|---|")
    for row in measured(options.other, options.seconds, options.rounds):
        print("| {} | {:.0f} | {:.0f} | {:.3f} |".format(*row))


def measured(other: Path, seconds: float, rounds: int) -> list[tuple[str, float, float, float]]:
    """Of each kind of request: its name, the CPU time of both builds in µs, and their ratio."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        here = stack.enter_context(service(folder / "here", checkout=ROOT))
        there = stack.enter_context(service(folder / "there", checkout=other.resolve()))
        pairs = list(zip(_cases(here), _cases(there), strict=True))
        for _ in range(rounds):
            for pair in pairs:
                for case in pair:
                    case.measure(seconds, folder)
    return [_row(*pair) for pair in pairs]


def _row(here: Case, there: Case) -> tuple[str, float, float, float]:
    ratios = [ours / theirs for ours, theirs in zip(here.cpu_us, there.cpu_us, strict=True)]
    median = statistics.median
    return here.name, median(here.cpu_us), median(there.cpu_us), median(ratios)


def _cases(server: Server) -> list[Case]:
    declare(server, "durable")
    kinds: dict[str, Requests] = {
        "select, JSON": lambda: [json_select("durable")],
        "select, binary": lambda: [binary("durable")],
        "reward": lambda: rewards(server, REWARDS, 1),
    }
    return [
        Case(f"{name}, callers: {callers}", server, requests, callers)
        for callers in (1, CALLERS)
        for name, requests in kinds.items()
    ]


if __name__ == "__main__":
    main()
