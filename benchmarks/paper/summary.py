"""The figures of the report from finished runs: means over seeds, next to the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.paper import paper_figures
from benchmarks.paper.methods import ABLATION, SCRATCH, ZERO_SHOT
from benchmarks.paper.runs import Record
from benchmarks.paper.scoring import agreement

Summary = dict[str, Any]
FIRST_RECIPE = 1  # runs that recorded no recipe are from its time


def table_summary(records: Iterable[Record], dataset: str) -> Summary:
    """The zero-shot table, the ablation and the continued training of one data set."""
    mine = [record for record in records if record["dataset"] == dataset]
    continued = [*(method.name for method in ZERO_SHOT), SCRATCH.name]
    return {
        "dataset": dataset,
        "about": _about(mine),
        "zero_shot": _filled(
            (method.name, _zero_shot(mine, dataset, method.name)) for method in ZERO_SHOT
        ),
        "ablation": _filled(
            (column, _ablation(mine, dataset, column, method.name))
            for column, method in ABLATION.items()
        ),
        "continued": _with_ratios(_filled((name, _continued(mine, name)) for name in continued)),
    }


def selected(
    records: Iterable[Record], device_kind: str, rounds: int | None, recipe: int | None = None
) -> list[Record]:
    """The runs of one kind of device, with this number of source rounds or that of their newest.

    Of runs of one data set and method those with the configuration of the newest one are taken,
    and of one seed the newest: an older configuration is another experiment. With `recipe` only
    that recipe's runs count.
    """
    newest: dict[tuple[Any, ...], Record] = {}
    seeds: dict[tuple[Any, ...], Record] = {}
    for record in records:
        is_wanted = rounds is None or record["rounds"] == rounds or record["method"] == SCRATCH.name
        is_wanted &= recipe in (None, record.get("recipe", FIRST_RECIPE))
        if record["device_kind"] == device_kind and is_wanted:
            newest[record["dataset"], record["method"]] = record
            seeds[(*_experiment(record), record["seed"])] = record
    wanted = {_experiment(record) for record in newest.values()}
    return [record for key, record in sorted(seeds.items()) if key[:-1] in wanted]


def _experiment(record: Record) -> tuple[Any, ...]:
    return tuple(
        record[name] for name in ("dataset", "method", "config_digest", "rounds", "test_count")
    )


def spread(values: Sequence[float]) -> Summary:
    """Mean, sample standard deviation (0 for one value) and the values themselves."""
    std = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return {"mean": float(np.mean(values)), "std": std, "seeds": list(values)}


def _filled(entries: Iterable[tuple[str, Summary | None]]) -> dict[str, Summary]:
    return {name: entry for name, entry in entries if entry is not None}


def _of(records: Sequence[Record], method: str) -> list[Record]:
    return [record for record in records if record["method"] == method]


def _about(records: Sequence[Record]) -> Summary:
    """How the figures were obtained."""
    return {
        "devices": sorted({record["device"] for record in records}),
        "rounds": sorted({r["rounds"] for r in records if r["method"] != SCRATCH.name}),
        "test_count": sorted({record["test_count"] for record in records}),
    }


def _zero_shot(records: Sequence[Record], dataset: str, method: str) -> Summary | None:
    found = _of(records, method)
    if not found:
        return None
    figure = paper_figures.ZERO_SHOT.get(dataset, {}).get(method)
    return {**_accuracies(found), "paper": figure.as_dict() if figure else None}


def _ablation(records: Sequence[Record], dataset: str, column: str, method: str) -> Summary | None:
    found = _of(records, method)
    if not found:
        return None
    figure = paper_figures.ABLATION.get(dataset, {}).get(column)
    return {**_accuracies(found), "paper": figure.as_dict() if figure else None}


def _accuracies(found: Sequence[Record]) -> Summary:
    return {
        **spread([record["target"] for record in found]),
        "agreement": agreement([record["target_arms"] for record in found]),
        "per_class": _column_means([record["target_per_class"] for record in found]),
        "source_recent": _mean(record["source_recent"] for record in found),
        "source_test": _mean(record["source_test"] for record in found),
        "refusals": _mean(record["refusals"] for record in found),
        "updates": _mean(record["updates"] for record in found),
        "seconds": _mean(record["seconds"] for record in found),
        "training_seconds": _mean(record["training_seconds"] for record in found),
        "transfer": _signs([record["transfer"] for record in found]),
    }


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _column_means(rows: Sequence[Sequence[float | None]]) -> list[float | None]:
    return [_mean(column) for column in zip(*rows, strict=True)]


def _signs(reports: Sequence[Mapping[str, float] | None]) -> dict[str, float | None] | None:
    known = [report for report in reports if report is not None]
    if not known:
        return None
    return {name: _mean(report[name] for report in known) for name in known[0]}


def _continued(records: Sequence[Record], method: str) -> Summary | None:
    """Cumulative regret; the runs with the most rounds of it, so that curves have equal points."""
    curves = [r["continued"] for r in _of(records, method) if r["continued"]]
    longest = max((curve["rounds"] for curve in curves), key=lambda each: each[-1], default=None)
    if longest is None:
        return None
    regrets = np.array([curve["regret"] for curve in curves if curve["rounds"] == longest])
    stds = regrets.std(axis=0, ddof=1) if len(regrets) > 1 else np.zeros(len(longest))
    return {
        **spread(regrets[:, -1].tolist()),
        "paper": None,  # a plot without figures
        "curve": {
            "rounds": list(longest),
            "mean": regrets.mean(axis=0).tolist(),
            "std": stds.tolist(),
        },
    }


def _with_ratios(continued: dict[str, Summary]) -> dict[str, Summary]:
    """Each compared with the cost of learning from scratch."""
    scratch = continued.get(SCRATCH.name)
    for entry in continued.values():
        has_base = scratch is not None and scratch["mean"] > 0
        entry["of_scratch"] = entry["mean"] / scratch["mean"] if scratch and has_base else None
    return continued
