"""From the command line to the runs that it asks for."""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from benchmarks.datasets.folder import MissingDataError
from benchmarks.datasets.registry import PAIRS, load, names
from benchmarks.paper import budget
from benchmarks.paper.jobs import Job
from benchmarks.paper.methods import ABLATION, PAIR_METHODS, SCRATCH, ZERO_SHOT
from model.config import BanditConfig
from service.parallel.engine import EngineError
from service.parallel.opening import EngineOptions

PARTS = ("zero-shot", "ablation", "continued")
WITHOUT_DATA = "simulated:shifted-0"


@dataclass(frozen=True, slots=True)
class Plan:
    """The runs, and what the report is about."""

    jobs: tuple[Job, ...]
    datasets: tuple[str, ...]  # with tables of their own
    has_pairs: bool


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, checked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paper")
    known = [method.name for method in ZERO_SHOT]
    add = parser.add_argument
    add("--dataset", nargs="+", default=["digit"], metavar="NAME", help="digit, pairs, or names")
    add("--methods", nargs="+", choices=known, help="default: all; on pairs the three compared")
    add("--seeds", type=_count, help="number of seeds; default 5, on pairs 3")
    add("--rounds", type=_count, help="source rounds; default: the data set's")
    add("--parts", default=",".join(PARTS), help=f"of {','.join(PARTS)}; pairs are zero-shot only")
    add("--device", default="cpu", help="cpu, cuda or cuda:N")
    add("--data", help="folder of the data or of packs; default DABAND_DATA or the user's cache")
    add("--runs", type=Path, help="finished runs; default docs/results/runs.jsonl")
    add("--out", type=Path, help="folder of the report; its page lies beside it")
    add("--parallel", type=_count, default=1, metavar="N", help="runs at once, as threads (GPU)")
    add("--processes", type=_count, metavar="N", help="runs at once, as processes")
    _add_engine(parser)
    add(
        "--threads", type=_count, default=1, metavar="N", help="of torch in each run; 1 for vectors"
    )
    add("--quick", action="store_true", help="one seed and few rounds, within minutes on a CPU")
    add(
        "--change",
        type=_change,
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="another recipe, with results of its own in build/paper-changed",
    )
    add("--via", metavar="URL", help="play against a running service; zero-shot only")
    add("--report-only", action="store_true", help="run nothing, report what there is")
    add("--recipe", type=_count, help="report runs of this recipe; default: the newest runs")
    options = parser.parse_args(arguments)
    folder = Path("build/paper-quick") if options.quick else Path("docs/results")
    if options.change:
        folder = Path("build/paper-changed")
    options.out = options.out or folder
    options.runs = options.runs or folder / "runs.jsonl"
    options.parts = _parts(parser, options)
    _check(parser, options)
    return options


def planned(options: argparse.Namespace) -> Plan:
    """All runs that the options ask for, each once."""
    tables = [name for name in options.dataset if name != "pairs" and name not in PAIRS]
    pairs = [name for name in options.dataset if name in PAIRS]
    if "pairs" in options.dataset:
        pairs = list(PAIRS)
    if options.quick:
        tables = [_with_data(name, options.data) for name in (*tables, *pairs)]
        pairs = []
    jobs = [job for name in tables for job in _table_jobs(name, options)]
    jobs += [job for name in pairs for job in _pair_jobs(name, options)]
    return Plan(tuple(dict.fromkeys(jobs)), tuple(dict.fromkeys(tables)), bool(pairs))


def _add_engine(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--engine", choices=("process", "ray"), default="process", help="where runs are made")
    add("--address", help="with --engine ray: a cluster that runs; default: this machine")


def ray_options(options: argparse.Namespace) -> EngineOptions | None:
    """The Ray cluster that the runs are for, if they are for one."""
    if options.engine != "ray":
        return None
    return EngineOptions("ray", options.processes, options.address)


def _check_engine(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    try:
        EngineOptions(options.engine, options.processes, options.address).check()
    except EngineError as error:
        parser.error(str(error))
    if options.engine == "ray" and options.device != "cpu":
        parser.error("--engine ray: runs in a cluster use CPUs; leave out --device")


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _change(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    if name not in {field.name for field in fields(BanditConfig)}:
        raise argparse.ArgumentTypeError(f"there is no field {name}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value  # a word


def _parts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> tuple[str, ...]:
    parts = tuple(options.parts.split(","))
    if options.via:
        is_default = parts == PARTS
        parts = ("zero-shot",) if is_default else parts
        if "continued" in parts:
            parser.error("--via: the service cannot open the target yet; leave out continued")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--parts: there is no {sorted(unknown)[0]}; parts: {', '.join(PARTS)}")
    return parts


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    _check_datasets(parser, options.dataset)
    _check_engine(parser, options)


def _check_datasets(parser: argparse.ArgumentParser, datasets: Sequence[str]) -> None:
    known = ("pairs", *names())
    for name in datasets:
        if name not in known:
            parser.error(f"--dataset: there is no {name}; there are {', '.join(known)}")


def _with_data(name: str, data: str | None) -> str:
    """The data set, or a simulated one where its files are missing: a quick look needs no data."""
    try:
        load(name, data)
    except MissingDataError as error:
        print(f"{error}\nThe quick run plays {WITHOUT_DATA} instead.")
        return WITHOUT_DATA
    return name


def _table_jobs(dataset: str, options: argparse.Namespace) -> Iterator[Job]:
    chosen = options.methods or [method.name for method in ZERO_SHOT]
    has_continued = "continued" in options.parts
    on_target = budget.QUICK_CONTINUED_ROUNDS if options.quick else budget.CONTINUED_ROUNDS
    for seed in range(_seeds(options, budget.SEEDS)):
        if "zero-shot" in options.parts or has_continued:
            for method in chosen:
                yield _job(dataset, method, seed, options, on_target if has_continued else 0)
        if "ablation" in options.parts and "daband" in chosen:
            for method in ABLATION.values():
                is_there = method.name in chosen and has_continued
                yield _job(dataset, method.name, seed, options, on_target if is_there else 0)
        if has_continued:
            yield _job(dataset, SCRATCH.name, seed, options, on_target)


def _pair_jobs(dataset: str, options: argparse.Namespace) -> Iterator[Job]:
    for seed in range(_seeds(options, budget.PAIR_SEEDS)):
        for method in options.methods or PAIR_METHODS:
            yield _job(dataset, method, seed, options, 0)


def _seeds(options: argparse.Namespace, default: int) -> int:
    return int(options.seeds or (1 if options.quick else default))


def _job(
    dataset: str, method: str, seed: int, options: argparse.Namespace, continued_rounds: int
) -> Job:
    default = budget.QUICK_ROUNDS if options.quick else budget.default_rounds(dataset)
    return Job(
        dataset=dataset,
        method=method,
        seed=seed,
        rounds=continued_rounds if method == SCRATCH.name else options.rounds or default,
        continued_rounds=continued_rounds,
        device=options.device,
        data=options.data,
        test_limit=budget.QUICK_TESTS if options.quick else 0,
        changes=(*(budget.QUICK_CHANGES if options.quick else ()), *options.change),
        via=options.via,
    )
