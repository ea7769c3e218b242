"""Negative transfer: every pair of domains compared with the method without alignment."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.datasets.registry import PAIRS
from benchmarks.paper.methods import PAIR_METHODS
from benchmarks.paper.runs import Record
from benchmarks.paper.scoring import agreement
from benchmarks.paper.summary import Summary, spread
from model.ope.beta import f_quantile

MARGIN = 0.02  # more than this below the baseline is negative transfer
BASELINE, *CHALLENGERS = PAIR_METHODS


def pairs_summary(records: Iterable[Record]) -> Summary:
    """Every pair for which the baseline and another method have runs, and the methods' gains over theirs."""
    found = list(records)
    pairs = {pair: entry for pair in PAIRS if (entry := _pair(found, pair)) is not None}
    return {
        "about": {
            "devices": sorted({record["device"] for record in found}),
            "margin": MARGIN,
        },
        "pairs": pairs,
        "gains": {
            method: {
                **_gains(theirs),
                "bound_below_margin": _bounds_below_margin(pairs, method),
                "agreement": _agreement(pairs, method),
            }
            for method in CHALLENGERS
            if (theirs := _differences(pairs, method))
        },
    }


def set_of(pair: str) -> str:
    """The data set that a pair belongs to; simulated worlds by their kind."""
    name, _, domains = pair.partition(":")
    return f"{name}:{domains.rpartition('-')[0]}" if name == "simulated" else name


def _pair(records: Sequence[Record], pair: str) -> Summary | None:
    mine = [record for record in records if record["dataset"] == pair]
    by_method = {
        method: {r["seed"]: r for r in mine if r["method"] == method} for method in PAIR_METHODS
    }
    baseline = by_method[BASELINE]
    # Seeds are compared with themselves: a method that is not finished has fewer.
    seeds = {method: sorted(set(runs) & set(baseline)) for method, runs in by_method.items()}
    there = [method for method in CHALLENGERS if seeds[method]]
    if not there:
        return None
    entry: dict[str, Any] = {
        method: {
            **spread([by_method[method][seed]["target"] for seed in seeds[method]]),
            "agreement": agreement([by_method[method][s]["target_arms"] for s in seeds[method]]),
            "seconds": float(np.mean([by_method[method][s]["seconds"] for s in seeds[method]])),
        }
        for method in (BASELINE, *there)
    }
    entry["rounds"] = mine[-1]["rounds"]
    gains = {
        method: [by_method[method][s]["target"] - baseline[s]["target"] for s in seeds[method]]
        for method in there
    }
    entry["differences"] = {method: float(np.mean(each)) for method, each in gains.items()}
    entry["standard_errors"] = {method: _standard_error(each) for method, each in gains.items()}
    entry["lower_bounds"] = {method: lower_bound(each) for method, each in gains.items()}
    return entry


def _standard_error(values: Sequence[float]) -> float | None:
    """How far their mean may be off by chance; None for one value."""
    count = len(values)
    return float(np.std(values, ddof=1) / np.sqrt(count)) if count > 1 else None


def lower_bound(values: Sequence[float]) -> float | None:
    """The one-sided 95 % lower bound of their mean, by Student's t over the seeds; None for one value."""
    error = _standard_error(values)
    if error is None:
        return None
    # The square of Student's t is F with one degree of freedom: both tails of 90 % are one of 95 %.
    width = math.sqrt(f_quantile(0.9, len(values) - 1))
    return float(np.mean(values)) - width * error


def _differences(pairs: Mapping[str, Summary], method: str) -> dict[str, float]:
    return {
        pair: entry["differences"][method]
        for pair, entry in pairs.items()
        if method in entry["differences"]
    }


def _bounds_below_margin(pairs: Mapping[str, Summary], method: str) -> list[str]:
    """The pairs of which negative transfer is not excluded at 95 %: one seed excludes nothing."""
    bounds = {pair: entry["lower_bounds"].get(method, 0.0) for pair, entry in pairs.items()}
    return [pair for pair, bound in bounds.items() if bound is None or bound < -MARGIN]


def _agreement(pairs: Mapping[str, Summary], method: str) -> float | None:
    """How often seeds choose the same arm on the target, a mean over pairs; None for single seeds."""
    each = [entry[method]["agreement"] for entry in pairs.values() if method in entry]
    known = [value for value in each if value is not None]
    return float(np.mean(known)) if known else None


def _gains(differences: Mapping[str, float]) -> Summary:
    by_set: dict[str, list[float]] = {}
    for pair, difference in differences.items():
        by_set.setdefault(set_of(pair), []).append(difference)
    worst = min(differences, key=lambda pair: differences[pair])
    sets = {name: float(np.mean(values)) for name, values in by_set.items()}
    return {
        "pair_count": len(differences),
        "worst_pair": worst,
        "worst": differences[worst],
        "mean_over_pairs": float(np.mean(list(differences.values()))),
        "mean_over_sets": float(np.mean(list(sets.values()))),
        "sets": sets,
        "below_margin": [pair for pair, value in differences.items() if value < -MARGIN],
    }
