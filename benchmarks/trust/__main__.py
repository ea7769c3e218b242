"""`python -m benchmarks.trust [--data FOLDER] [--pairs NAME …] [--methods …] [--variants …] [--out FILE]`

Each run plays a pair as `benchmarks.paper` does and is judged without target rewards. Then the target
rewards say what the policy earns. A run that `--out` holds is not repeated. `--pairs` names tasks or
how their names begin; without it all pairs are played. Runs of `nlinucb` beside others give the tables
of gains over it. `--from FILE …` prints the tables of stored runs, and with `--page` writes those of
docs/results.md.
"""

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks.datasets.registry import PAIRS, names
from benchmarks.paper.executing import begin_process
from benchmarks.paper.methods import BY_NAME
from benchmarks.paper.runs import RunsFile
from benchmarks.trust.against import gains, pairs_table, totals_table
from benchmarks.trust.measuring import Job, key_of
from benchmarks.trust.page import write_page
from benchmarks.trust.summary import findings, table
from benchmarks.trust.variants import VARIANTS


def main(arguments: Sequence[str] | None = None) -> None:
    """Run all that is asked for and print the figures."""
    options = _options(arguments)
    if options.read:
        lines = [line for path in options.read for line in path.read_text().splitlines()]
        records = [json.loads(line) for line in lines]
        _print(records)
        if options.page:
            write_page(options.page, records)
        return
    jobs = [
        Job(name, variant, method, seed, options.device, options.data, options.rounds)
        for seed in options.seeds
        for variant in options.variants
        for name in _tasks(options.pairs)
        for method in options.methods
    ]
    _print(_run(jobs, options.processes, options.out))


def _tasks(wanted: Sequence[str] | None) -> list[str]:
    """The tasks of these names; a name that is none stands for all that begin with it."""
    if wanted is None:
        return list(PAIRS)
    found = [
        name
        for each in wanted
        for name in names()
        if name == each or (each not in names() and name.startswith(each))
    ]
    return list(dict.fromkeys(found))


def _run(jobs: Sequence[Job], processes: int, out: Path | None) -> list[dict[str, Any]]:
    """The records of all jobs; each is written to `out` when it is there, and read from it."""
    file = None if out is None else RunsFile(out)
    done = {key_of(record): record for record in (file.records() if file else ())}
    records = [done[job.key()] for job in jobs if job.key() in done]
    missing = [job for job in jobs if job.key() not in done]
    print(f"{len(jobs)} runs, {len(records)} of them in {out}", flush=True)
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=begin_process, initargs=(1,)) as pool:
        for future in as_completed([pool.submit(job.run) for job in missing]):
            records.append(future.result())
            if file:
                file.append(records[-1])
    return records


def _print(records: Sequence[dict[str, Any]]) -> None:
    judged = [record for record in records if record["judgement"] is not None]
    judged.sort(key=_order)
    print(f"{len(judged)} of {len(records)} runs were judged\n")
    print(table(judged), *findings(judged), sep="\n")
    if found := gains(sorted(records, key=_order)):
        print("", totals_table(found), "", pairs_table(found), sep="\n")


def _order(record: Mapping[str, Any]) -> int:
    return list(VARIANTS).index(record["variant"])


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data")
    parser.add_argument("--pairs", nargs="+")
    parser.add_argument("--methods", nargs="+", default=["daband", "daband-plus"], choices=BY_NAME)
    parser.add_argument("--variants", nargs="+", default=["plain"], choices=VARIANTS)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=0, help="0: as many as the paper's benchmark")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", dest="read", type=Path, nargs="+")
    parser.add_argument("--page", type=Path, help="docs/results.md, whose tables are made anew")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
