"""`python -m benchmarks.trust [--data FOLDER] [--pairs PREFIX …] [--methods …] [--variants …] [--out FILE]`

Each run plays a pair as `benchmarks.paper` does and is judged without target rewards. Then the target
rewards say what the policy earns. `--from FILE` prints the table of stored runs.
"""

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.datasets.registry import PAIRS
from benchmarks.paper.executing import begin_process
from benchmarks.trust.measuring import Job
from benchmarks.trust.summary import findings, table
from benchmarks.trust.variants import VARIANTS


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all that is asked for and print the figures."""
    options = _options(arguments)
    if options.read:
        lines = options.read.read_text().splitlines()
        _print([json.loads(line) for line in lines])
        return
    names = [name for name in PAIRS if name.startswith(tuple(options.pairs))]
    jobs = [
        Job(name, variant, method, seed, options.device, options.data, options.rounds)
        for seed in options.seeds
        for variant in options.variants
        for name in names
        for method in options.methods
    ]
    _print(_run(jobs, options.processes, options.out))


def _run(jobs: Sequence[Job], processes: int, out: Path | None) -> list[dict[str, Any]]:
    """The records of all jobs; each is written to `out` when it is there."""
    records = []
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=begin_process, initargs=(1,)) as pool:
        for future in as_completed([pool.submit(job.run) for job in jobs]):
            records.append(future.result())
            if out:
                with out.open("a") as file:
                    file.write(json.dumps(records[-1]) + "\n")
    return records


def _print(records: Sequence[dict[str, Any]]) -> None:
    judged = [record for record in records if record["judgement"] is not None]
    judged.sort(key=lambda each: list(VARIANTS).index(each["variant"]))
    print(f"{len(judged)} of {len(records)} runs were judged\n")
    print(table(judged), *findings(judged), sep="\n")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--pairs", nargs="+", default=[""])
    parser.add_argument("--methods", nargs="+", default=["daband", "daband-plus"])
    parser.add_argument("--variants", nargs="+", default=["plain"], choices=VARIANTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=0, help="0: as many as the paper's benchmark")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", dest="read", type=Path)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
