"""Methods against the one without alignment, on the same pairs, variants and seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.datasets.registry import Part, part_of
from benchmarks.paper.pairs_summary import BASELINE, MARGIN, lower_bound
from benchmarks.paper.tables import NONE, markdown, signed
from benchmarks.trust.summary import Record

TITLES = (
    *("variant", "method", "part", "pairs", "seeds", f"mean over `{BASELINE}`", "worst pair"),
    *("least 95 % lower bound", f"bounds below −{MARGIN}"),
)


@dataclass(frozen=True, slots=True)
class Gain:
    """How far a method is ahead of the baseline on one pair, seed by seed."""

    variant: str
    method: str
    pair: str
    by_seed: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return float(np.mean(self.by_seed))

    @property
    def bound(self) -> float | None:
        """The one-sided 95 % lower bound; None for one seed."""
        return lower_bound(self.by_seed)


def gains(records: Sequence[Record]) -> list[Gain]:
    """Of every variant, method and pair that shares seeds with the baseline."""
    shares: dict[tuple[str, str, str], dict[int, float]] = {}
    for each in records:
        key = (each["variant"], each["method"], each["dataset"])
        shares.setdefault(key, {})[each["seed"]] = each["earned"] / each["best"]
    found = []
    for (variant, method, pair), by_seed in shares.items():
        theirs = shares.get((variant, BASELINE, pair), {})
        seeds = sorted(set(by_seed) & set(theirs))
        if method != BASELINE and seeds:
            ahead = tuple(by_seed[seed] - theirs[seed] for seed in seeds)
            found.append(Gain(variant, method, pair, ahead))
    return found


def totals_table(found: Sequence[Gain]) -> str:
    """A row for each variant, method and part of the data, and for both parts together."""
    rows = []
    for (variant, method), mine in _grouped(found).items():
        parts = {part.value: [each for each in mine if part_of(each.pair) is part] for part in Part}
        for name, some in {**parts, "all": mine}.items():
            if some:
                rows.append([variant, f"`{method}`", name, *_totals(some)])
    return markdown(TITLES, rows)


def pairs_table(found: Sequence[Gain]) -> str:
    """A pair a row, a method a column: mean difference, and in brackets its lower bound."""
    methods = list(dict.fromkeys(each.method for each in found))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for each in found:
        text = f"{signed(each.mean)} ({_signed(each.bound)})"
        cells.setdefault((each.variant, each.pair), {})[each.method] = text
    return markdown(
        ("variant", "part", "pair", *(f"`{method}`" for method in methods)),
        (
            (variant, part_of(pair).value, pair, *(row.get(method, NONE) for method in methods))
            for (variant, pair), row in cells.items()
        ),
    )


def _totals(some: Sequence[Gain]) -> Iterator[str]:
    worst = min(some, key=lambda each: each.mean)
    bounds = {each.pair: each.bound for each in some if each.bound is not None}
    least = min(bounds, key=lambda pair: bounds[pair]) if bounds else None
    counts = sorted({len(each.by_seed) for each in some})
    yield str(len(some))
    yield "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    yield signed(float(np.mean([each.mean for each in some])))
    yield f"{signed(worst.mean)} ({worst.pair})"
    yield f"{signed(bounds[least])} ({least})" if least else NONE
    yield f"{sum(bound < -MARGIN for bound in bounds.values())} of {len(bounds)}"


def _signed(value: float | None) -> str:
    return NONE if value is None else signed(value)


def _grouped(found: Sequence[Gain]) -> Mapping[tuple[str, str], list[Gain]]:
    groups: dict[tuple[str, str], list[Gain]] = {}
    for each in found:
        groups.setdefault((each.variant, each.method), []).append(each)
    return groups
